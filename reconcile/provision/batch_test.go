package provision

import (
	"testing"
	"time"
)

func TestBatchesStretch(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b := Batch{Idle: 200 * time.Millisecond, Max: 2 * time.Second}
	var r row
	for _, step := range []struct {
		why   string
		after time.Duration // since the last plan that opened nodes
		want  time.Duration
	}{
		{"the first pods don't wait", 0, 200 * time.Millisecond},
		{"pods drip in", time.Second, 400 * time.Millisecond},
		{"and drip", time.Second, 800 * time.Millisecond},
		{"and drip", 2 * time.Second, 1600 * time.Millisecond},
		{"never longer than Max", 2 * time.Second, 2 * time.Second},
		{"nor after many", lull, 2 * time.Second},
		{"a lull ends the row", lull + 1, 200 * time.Millisecond},
	} {
		now := start.Add(step.after)
		if got := b.idle(r.at(now)); got != step.want {
			t.Errorf("%s: %v, want %v", step.why, got, step.want)
		}
		r, start = r.opened(now), now
	}
	if got := (Batch{Idle: 3 * time.Second, Max: time.Second}).idle(4); got != 3*time.Second {
		t.Errorf("an Idle above Max became %v", got)
	}
}
