package policies

import (
	"slices"
	"testing"
	"time"
)

// at is a Monday.
func at() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// TestLibrary runs the cases that every rule of the library comes with.
func TestLibrary(t *testing.T) {
	s := New(nil, Options{At: at(), Apply: []string{"all"}}).Ruleset("")
	n, findings := s.Test()
	for _, f := range findings {
		t.Errorf("%s: %s", f.Pos, f.Message)
	}
	if n < 60 {
		t.Errorf("only %d cases ran", n)
	}
	for _, r := range s.Rules() {
		if r.Good == "" || r.Bad == "" {
			t.Errorf("%s has no example", r.ID)
		}
		if len(r.Groups) == 0 || slices.Contains(r.Groups, "all") {
			t.Errorf("%s is in the groups %v", r.ID, r.Groups)
		}
	}
}
