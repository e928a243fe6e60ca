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

// TestAPreferenceIsWorthWhatIsStated: pods that would like a type of which they'd fill
// many small nodes get it if that is worth the money, or costs none.
func TestAPreferenceIsWorthWhatIsStated(t *testing.T) {
	for name, test := range map[string]struct {
		why    string
		weight int32
		likes  string
		pods   int
		kept   bool
		huge   int // pods that fit nowhere
	}{
		"light":         {"1.4 cents more a pod are 140 times what it is worth", 1, "c-1x", 200, false, 0},
		"beside":        {"another pod without a place changes nothing", 1, "c-1x", 200, false, 1},
		"heavy":         {"1.2 cents more a pod are more than half a cent", 50, "c-1x", 200, false, 0},
		"for free":      {"the type costs no more than any", 1, "c-16x", 186, true, 0},
		"one, for free": {"one pod needs the smallest type anyway", 1, "c-1x", 1, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &PodSpec{Requests: Resources{CPU: 500, Memory: gib}, Preferred: []Preference{{Weight: test.weight, Requirements: []Requirement{{Key: LabelInstanceType, Operator: In, Values: []string{test.likes}}}}}}
			p := Problem{Pools: []Pool{{Name: "default", Types: endToEndTypes(16)}}}
			for i := range test.pods {
				p.Pods = append(p.Pods, Pod{Name: fmt.Sprint(i), Spec: s})
			}
			for i := range test.huge {
				p.Pods = append(p.Pods, Pod{Name: fmt.Sprint("huge", i), Spec: &PodSpec{Requests: Resources{CPU: 10_000_000}}})
			}
			cost := map[Policy]*Plan{}
			for _, policy := range []Policy{Priced, Ignore} {
				plan, err := Solve(p, Options{Preferences: policy})
				if err != nil {
					t.Fatal(err)
				}
				cost[policy] = plan
			}
			most := cost[Ignore].MicroUSD + int64(test.pods)*int64(test.weight)*100
			if cost[Priced].MicroUSD > most {
				t.Errorf("priced costs %d, ignoring the preferences %d (%s)", cost[Priced].MicroUSD, cost[Ignore].MicroUSD, test.why)
			}
			if cost[Priced].LowerBound > cost[Ignore].MicroUSD {
				t.Errorf("bound %d is above a plan's cost %d", cost[Priced].LowerBound, cost[Ignore].MicroUSD)
			}
			for _, n := range cost[Priced].NewNodes {
				if test.kept != (n.Options[0].Type == test.likes) {
					t.Errorf("opens %s for %d pods (%s)", n.Options[0].Type, len(n.Pods), test.why)
				}
			}
		})
	}
}
