package health

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// storm plays ten minutes in which a pool launches whenever it may, second by
// second, and returns how many claims that made.
func storm(t *testing.T, burst int, outcome func(tr *Tracker, claim string, now time.Time)) int {
	t.Helper()
	var tr Tracker
	made := 0
	for now := start; now.Sub(start) < 10*time.Minute; now = now.Add(time.Second) {
		h := tr.Hold("a")
		if h.Closed(now) {
			continue
		}
		n := burst
		if h.Failures > 0 {
			n = 1
		}
		var claims []string
		for range n {
			made++
			claims = append(claims, fmt.Sprint(made))
			if h.Failures > 0 {
				tr.Probe("a", claims[0])
			}
		}
		for _, c := range claims {
			outcome(&tr, c, now)
		}
	}
	if h := tr.Hold("b"); h != (Hold{}) {
		t.Errorf("pool b, which did nothing, is held: %+v", h)
	}
	return made
}

func TestAFailingPoolIsBounded(t *testing.T) {
	made := storm(t, 20, func(tr *Tracker, c string, now time.Time) { tr.Failed("a", c, Launched, "no capacity", now) })
	if made < 25 || made > 30 {
		t.Errorf("a pool that always fails made %d claims in ten minutes; want the 20 that were asked for and at most 10 probes", made)
	}
}

func TestHold(t *testing.T) {
	type step func(tr *Tracker)
	fail := func(c string, s Stage, at time.Duration) step {
		return func(tr *Tracker) { tr.Failed("a", c, s, "why", start.Add(at)) }
	}
	probe := func(c string) step { return func(tr *Tracker) { tr.Probe("a", c) } }
	reach := func(c string, s Stage) step { return func(tr *Tracker) { tr.Reached("a", c, s) } }
	gone := func(c string) step { return func(tr *Tracker) { tr.Gone("a", c) } }
	tests := map[string]struct {
		why          string
		steps        []step
		wantFailures int
		wantUntil    time.Duration
		wantProbing  string
	}{
		"nothing happened": {why: "a new pool is free"},
		"one decision": {why: "claims that fail together are one failure",
			steps: []step{fail("1", Launched, 0), fail("2", Launched, 100*time.Millisecond)}, wantFailures: 1, wantUntil: time.Second},
		"a probe fails": {why: "the pause doubles",
			steps: []step{fail("1", Launched, 0), probe("2"), fail("2", Launched, 2*time.Second)}, wantFailures: 2, wantUntil: 4 * time.Second},
		"a probe is under way": {why: "nothing else is launched",
			steps: []step{fail("1", Launched, 0), probe("2")}, wantFailures: 1, wantUntil: time.Second, wantProbing: "2"},
		"an old claim fails meanwhile": {why: "it says nothing of the probe",
			steps: []step{fail("1", Launched, 0), probe("2"), fail("0", Launched, 5*time.Second)}, wantFailures: 1, wantUntil: time.Second, wantProbing: "2"},
		"a probe succeeds": {why: "the pool is open", steps: []step{fail("1", Launched, 0), probe("2"), reach("2", Launched)}},
		"a launch isn't a Node": {why: "instances that never register need more than another launch",
			steps: []step{fail("1", Registered, 0), probe("2"), reach("2", Launched)}, wantFailures: 1, wantUntil: time.Second, wantProbing: "2"},
		"somebody deletes the probe": {why: "the next may be made",
			steps: []step{fail("1", Launched, 0), probe("2"), gone("2")}, wantFailures: 1, wantUntil: time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			for _, s := range tc.steps {
				s(&tr)
			}
			want := Hold{Failures: tc.wantFailures, Probing: tc.wantProbing}
			if tc.wantFailures > 0 {
				want.Why, want.Until = "why", start.Add(tc.wantUntil)
			}
			got := tr.Hold("a")
			got.Stage = 0
			if got != want {
				t.Errorf("Hold() = %+v, want %+v (%s)", got, want, tc.why)
			}
		})
	}
}

func TestPauseIsBounded(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 100: 5 * time.Minute} {
		if got := pause(n); got != want {
			t.Errorf("pause(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestHealthy(t *testing.T) {
	tests := map[string]struct {
		why         string
		outcomes    string // + registered, - failed
		want, known bool
	}{
		"none":       {"no launch yet", "", false, false},
		"one failed": {"one of four is bad luck", "-", true, true},
		"half":       {"two of four", "+-+-", false, true},
		"recovered":  {"the last four count", "--+++", true, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			for i, o := range tc.outcomes {
				c := fmt.Sprint(i)
				if o == '+' {
					tr.Reached("a", c, Registered)
				} else {
					tr.Failed("a", c, Registered, "why", start)
					tr.Failed("a", c, Registered, "why", start) // a reconcile may run twice
				}
			}
			if got, known := tr.Healthy("a"); got != tc.want || known != tc.known {
				t.Errorf("Healthy() = %v, %v; want %v, %v (%s)", got, known, tc.want, tc.known, tc.why)
			}
		})
	}
	var tr Tracker
	tr.Recall("a", false)
	if got, known := tr.Healthy("a"); got || !known {
		t.Error("a restart forgot that the pool was unhealthy")
	}
}

// TestRestore has a successor take over what was known of a pool, once, and not over
// what it has seen itself.
func TestRestore(t *testing.T) {
	kept := Hold{Failures: 5, Stage: Registered, Why: "no Node registered", Until: start.Add(9 * time.Second)}
	fast := kept
	fast.Until = start.Add(time.Hour)
	bounded := kept
	bounded.Until = start.Add(16 * time.Second)
	tests := map[string]struct {
		why    string
		before func(tr *Tracker)
		kept   Hold
		want   Hold
	}{
		"after a restart":      {"the pause goes on", func(*Tracker) {}, kept, kept},
		"a clock was fast":     {"no longer than five failures hold", func(*Tracker) {}, fast, bounded},
		"a launch worked":      {"the watch may still show what was", func(tr *Tracker) { tr.Reached("a", "1", Launched) }, kept, Hold{}},
		"one has failed":       {"this is known first-hand", func(tr *Tracker) { tr.Failed("a", "1", Launched, "why", start) }, kept, Hold{1, Launched, "why", start.Add(time.Second), ""}},
		"the pool has changed": {"that may be the cure", func(tr *Tracker) { tr.Reset("a") }, kept, Hold{}},
		"health was recalled":  {"it says nothing of the pause", func(tr *Tracker) { tr.Recall("a", false) }, kept, kept},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var tr Tracker
			tc.before(&tr)
			tr.Restore("a", tc.kept, start)
			if got := tr.Hold("a"); got != tc.want {
				t.Errorf("Hold() = %+v, want %+v (%s)", got, tc.want, tc.why)
			}
		})
	}
	var tr Tracker
	tr.Restore("a", kept, start)
	tr.Failed("a", "1", Registered, "again", start.Add(10*time.Second))
	if got := tr.Hold("a"); got.Failures != 6 || !got.Until.Equal(start.Add(42*time.Second)) {
		t.Errorf("Hold() = %+v, want the sixth failure in a row to hold 32 s", got)
	}
	tr.Reached("a", "2", Initialized)
	if tr.Restore("a", kept, start) || tr.Hold("a").Failures > 0 {
		t.Error("what is over comes back")
	}
}
