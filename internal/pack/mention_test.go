package pack

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlansForget: a state that has seen other pods and daemons plans as one that
// hasn't.
func TestPlansForget(t *testing.T) {
	for seed := range 120 * cases(t) {
		r := rand.New(rand.NewPCG(seed, 8))
		p := randomProblem(r, allFeatures)
		want, err := Solve(p, Options{Work: 4})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewState(p)
		if err != nil {
			t.Fatal(err)
		}
		other := randomProblem(r, allFeatures)
		for i := range other.Pods {
			pod := other.Pods[i]
			pod.Name = fmt.Sprintf("other-%d", i)
			if err := s.SetPod(pod); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.SetDaemons(other.Daemons); err != nil {
			t.Fatal(err)
		}
		s.Solve(Options{Work: 1})
		for i := range other.Pods {
			s.RemovePod(fmt.Sprintf("other-%d", i))
		}
		if err := s.SetDaemons(p.Daemons); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.Solve(Options{Work: 4})); diff != "" {
			t.Fatalf("seed %d: what is gone changes the plan:\n%s", seed, diff)
		}
	}
}
