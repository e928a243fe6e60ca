package policies

import (
	"slices"
	"testing"
	"time"

	"cuelang.org/go/cue"
	"github.com/google/go-cmp/cmp"
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
		if r.value.LookupPath(cue.ParsePath("cases")).Exists() {
			t.Errorf("%s judges objects together with its cases", r.ID)
		}
		if len(r.Groups) == 0 || slices.Contains(r.Groups, "all") {
			t.Errorf("%s is in the groups %v", r.ID, r.Groups)
		}
	}
}

// TestJudging reads the library for judging alone, which must give the same rules.
func TestJudging(t *testing.T) {
	all := New(nil, Options{At: at(), Apply: []string{"all"}})
	quick := New(nil, Options{At: at(), Apply: []string{"all"}})
	quick.Prepare()
	b := fleet(30)
	spec, _ := b.Objects[0].Value["spec"].(map[string]any)
	delete(spec, "limits")
	want := all.Check(b, nil)
	if len(want) == 0 {
		t.Fatal("the library finds nothing")
	}
	if diff := cmp.Diff(want, quick.Check(b, nil)); diff != "" {
		t.Errorf("-with cases +without:\n%s", diff)
	}
	if len(quick.Ruleset("").Rules()) != len(all.Ruleset("").Rules()) {
		t.Error("not the same rules")
	}
}
