package disrupt

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestQuiet lets pods come or go at some seconds and says when the fleet is searched
// first.
func TestQuiet(t *testing.T) {
	every := func(step, until float64) (out []float64) {
		for at := 0.0; at < until; at += step {
			out = append(out, at)
		}
		return out
	}
	for name, tc := range map[string]struct {
		why     string
		changes []float64
		ending  []float64
		want    float64
	}{
		"one":             {"a second is enough", []float64{0}, nil, 1},
		"a short row":     {"a second after the last", every(0.5, 3), nil, 3.5},
		"a long row":      {"a fifth of 10 s after the last", every(0.5, 10.5), nil, 12},
		"a gap in a row":  {"the controller manager is slow, not done", append(every(0.5, 8.5), 9.5, 10), nil, 12},
		"without an end":  {"not everybody rests", every(0.5, 60), nil, 30},
		"a row after one": {"only what has gone on without a rest counts", append([]float64{0}, 20, 20.5), nil, 1},
		"slow to end":     {"their room isn't there yet", []float64{0}, every(0.25, 4), 4.75},
		"won't end":       {"30 s are enough to wait", []float64{0}, every(0.25, 60), 30},
	} {
		t.Run(name, func(t *testing.T) {
			var p pace
			for i := range 240 {
				at := float64(i) / 4
				pulse := uint64(1)
				for _, c := range tc.changes {
					if c <= at {
						pulse++
					}
				}
				if p.quiet(pulse, slices.Contains(tc.ending, at), now.Add(time.Duration(at*float64(time.Second)))) {
					if at != tc.want {
						t.Errorf("it is searched after %v s, want %v: %s", at, tc.want, tc.why)
					}
					return
				}
			}
			t.Error("it isn't searched at all")
		})
	}
}

// TestFoundAgain searches again after a node of 0.2 $/h was to go.
func TestFoundAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		why   string
		gone  bool // the node went
		opens bool // and another had to come
		found int
	}{
		"as promised":        {"what is found next is something else", true, false, 0},
		"for nothing":        {"the pods needed another node", true, true, 1},
		"nothing came of it": {"it would move the same pods for the same saving", false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.machine("a", "n1", 4)
			s.machine("a", "n2", 4)
			s.run("n1", "p1", 1)
			s.run("n2", "p2", 1)
			var p pace
			look := func(at time.Time) (out Input) {
				s.alter = func(in *Input) {
					in.Now = at
					p.look(in, 0)
					out = *in
				}
				d := s.decide(t)
				p.note(d, at, time.Millisecond)
				return out
			}
			look(now)
			first := look(now.Add(2 * time.Second))
			if !first.Quiet || p.found != 1 {
				t.Fatalf("quiet %v, found %d: nothing was tried", first.Quiet, p.found)
			}
			if tc.gone {
				s.state.DeleteNode("n1")
				s.state.DeleteClaim("claim-n1")
				s.run("n2", "p1", 1)
			}
			if tc.opens {
				s.machine("a", "n3", 4)
			}
			got := look(now.Add(time.Minute))
			if !got.Quiet {
				got = look(now.Add(time.Minute + 2*time.Second))
			}
			if !got.Quiet || got.Found != tc.found {
				t.Errorf("quiet %v, found %d, want %d: %s", got.Quiet, got.Found, tc.found, tc.why)
			}
		})
	}
}

// TestNextSearch has a search find that one of four nodes can go, and looks again six
// seconds later, while that one is on its way out.
func TestNextSearch(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		budget string
		moved  bool // its pod has a place
		want   bool
	}{
		"its pod has moved":            {"what becomes of the empty machine changes nothing", "100%", true, true},
		"its pod has yet to move":      {"it may land elsewhere than planned", "100%", false, false},
		"a part of the budget is left": {"what takes the place of one node is worse than of two", "2", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(func(p *karpenter.NodePool) { p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: tc.budget}} })
			for i, cpu := range []int64{1, 3, 3, 3} {
				n := fmt.Sprint("n", i+1)
				s.machine("a", n, 4)
				s.run(n, fmt.Sprint("p", i+1), cpu)
			}
			var p pace
			look := func(at time.Time) Decision {
				s.alter = func(in *Input) {
					in.Now = at
					p.look(in, 0)
				}
				d := s.decide(t)
				p.note(d, at, time.Millisecond)
				return d
			}
			look(now)
			d := look(now.Add(3 * time.Second))
			if len(d.Start) != 1 || d.Start[0].Claims[0] != "claim-n1" {
				t.Fatalf("begun with %v, want n1 to go", begun(d))
			}
			claim := s.state.Claim("claim-n1").DeepCopy()
			claim.Annotations[coppice.AnnotationDisruption] = d.Start[0].Encode()
			claim.DeletionTimestamp = &metav1.Time{Time: now.Add(3 * time.Second)}
			s.state.SetClaim(claim)
			if tc.moved {
				s.state.DeletePod(types.NamespacedName{Namespace: "d", Name: "p1"})
				s.run("n2", "p5", 1)
			}
			look(now.Add(4 * time.Second))
			if d := look(now.Add(9 * time.Second)); d.Searched != tc.want {
				t.Errorf("searched: %v, want %v: %s", d.Searched, tc.want, tc.why)
			}
		})
	}
}
