package difftest

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVerdictsAreEqual(t *testing.T) {
	cases := corpus(t)
	if len(cases) < 400 {
		t.Errorf("the corpus has %d objects, want at least 400", len(cases))
	}
	our, ourStatus := judge(t, ours(), false), judge(t, ours(), true)
	for _, r := range releases() {
		t.Run(r.version, func(t *testing.T) {
			their, theirStatus := judge(t, theirs(t, r), false), judge(t, theirs(t, r), true)
			needed := make([]int, len(r.differences))
			accepted, refused := 0, 0
			for _, c := range cases {
				a, b := our, their
				if c.status {
					a, b = ourStatus, theirStatus
				}
				x, y := outcomeOf(a.Check(c.obj, c.old)), outcomeOf(b.Check(c.obj, c.old))
				if !x.Accepted || !y.Accepted {
					x.Defaulted, y.Defaulted = nil, nil
				}
				if x.Accepted {
					accepted++
				} else {
					refused++
				}
				if reflect.DeepEqual(x, y) {
					continue
				}
				diff := cmp.Diff(y, x)
				known := false
				for i, d := range r.differences {
					if d.about(c) {
						needed[i]++
						known = true
					}
				}
				if !known {
					t.Errorf("%s (-theirs +ours):\n%sobject: %s\nold: %s\nours: %v\ntheirs: %v", c.name, diff, show(c.obj), show(c.old),
						a.Check(c.obj, c.old).Violations, b.Check(c.obj, c.old).Violations)
				}
			}
			for i, d := range r.differences {
				if needed[i] == 0 {
					t.Errorf("the listed difference isn't one: %s", d.why)
				}
			}
			t.Logf("%d objects: %d accepted, %d refused", len(cases), accepted, refused)
		})
	}
}

// Each rule's sides are what they say.
func TestRulesHaveBothSides(t *testing.T) {
	plain, status := judge(t, ours(), false), judge(t, ours(), true)
	for _, c := range corpus(t) {
		j := plain
		if c.status {
			j = status
		}
		if c.want == nil {
			continue
		}
		if v := j.Check(c.obj, c.old); v.Accepted() != *c.want {
			t.Errorf("%s: accepted: %v, want %v: %v\n%s", c.name, v.Accepted(), *c.want, v.Violations, show(c.obj))
		}
	}
}
