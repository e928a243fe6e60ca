package pack

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestNeverDearerThanThePeer compares plans with those of the peer's algorithm for
// the same pods and types: the first plan too, which is what there is when time is
// short.
func TestNeverDearerThanThePeer(t *testing.T) {
	seeded := func(n int) *rand.Rand { return rand.New(rand.NewPCG(2, uint64(n))) }
	for name, test := range map[string]struct {
		why   string
		types []InstanceType
		pods  func(n int) []Pod
	}{
		"peer":         {"its own benchmark", peerTypes(400), func(n int) []Pod { return peerPods(n, seeded(n)) }},
		"generic":      {"pods without constraints", peerTypes(400), func(n int) []Pod { return genericPods(n, seeded(n)) }},
		"cap16":        {"Deployments on types of up to 16 cores", endToEndTypes(16), func(n int) []Pod { return endToEndPods(n, false) }},
		"cap16, zonal": {"the same, spread over zones", endToEndTypes(16), func(n int) []Pod { return endToEndPods(n, true) }},
		"full":         {"Deployments on types of up to 256 cores", endToEndTypes(256), func(n int) []Pod { return endToEndPods(n, false) }},
		"full, zonal":  {"the same, spread over zones", endToEndTypes(256), func(n int) []Pod { return endToEndPods(n, true) }},
		"catalogue":    {"real types", catalogueTypes("us-west-2", false), func(n int) []Pod { return genericPods(n, seeded(n)) }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{50, 100, 500, 1000} {
				pods := test.pods(n)
				nodes, cost := peerPlan(test.types, pods)
				for _, work := range []int{-1, 8} {
					plan, err := Solve(Problem{Pools: []Pool{{Name: "default", Types: test.types}}, Pods: pods}, Options{Work: work})
					if err != nil {
						t.Fatal(err)
					}
					if len(plan.Unschedulable) > 0 {
						t.Fatalf("%d pods: %d unschedulable", n, len(plan.Unschedulable))
					}
					if plan.MicroUSD > cost {
						t.Errorf("%d pods, work %d: %s for %d nodes, the peer %s for %d", n, work, usd(plan.MicroUSD), len(plan.NewNodes), usd(cost), nodes)
					}
					t.Logf("%d pods, work %d: %s $/h, the peer %s (%+.1f %%), bound %s", n, work, usd(plan.MicroUSD), usd(cost), 100*(float64(cost)/float64(plan.MicroUSD)-1), usd(plan.LowerBound))
				}
			}
		})
	}
}

func usd(micro int64) string { return fmt.Sprintf("%.2f", float64(micro)/1e6) }
