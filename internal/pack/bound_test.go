package pack

import (
	"fmt"
	"testing"
)

// TestBoundCountsNodes has pods that need a node each, whatever its size: what they
// cost at least is known exactly.
func TestBoundCountsNodes(t *testing.T) {
	apart := []PodTerm{{TopologyKey: LabelHostname, Selector: labelled("app", "x")}}
	spread := func(skew int32) []Spread {
		return []Spread{{TopologyKey: LabelHostname, MaxSkew: skew, Selector: labelled("app", "x")}}
	}
	for name, test := range map[string]struct {
		why   string
		spec  PodSpec
		nodes int64
	}{
		"anti-affinity":     {"a node takes one", PodSpec{PodAntiAffinity: apart}, 200},
		"host port":         {"a node has each port once", PodSpec{HostPorts: []HostPort{{Port: 80, Protocol: "TCP"}}}, 200},
		"spread":            {"a node takes as many as the skew", PodSpec{Spread: spread(1)}, 200},
		"spread by four":    {"a node takes as many as the skew", PodSpec{Spread: spread(4)}, 50},
		"spread, then both": {"the stricter of two counts", PodSpec{Spread: spread(4), PodAntiAffinity: apart}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			p := Problem{Pools: []Pool{{Name: "default", Types: endToEndTypes(16)}}}
			test.spec.Requests = Resources{CPU: 100, Memory: 128 * mib}
			for i := range 200 {
				p.Pods = append(p.Pods, Pod{Name: fmt.Sprintf("p%03d", i), Labels: map[string]string{"app": "x"}, Spec: &test.spec})
			}
			for _, work := range []int{-1, 8} {
				plan, err := Solve(p, Options{Work: work})
				if err != nil {
					t.Fatal(err)
				}
				// The smallest type takes four of them.
				if want := test.nodes * 27147; plan.LowerBound < want*999/1000 || plan.MicroUSD > want || int64(len(plan.NewNodes)) != test.nodes {
					t.Errorf("work %d: %d nodes for %d, bound %d, want %d nodes for %d", work, len(plan.NewNodes), plan.MicroUSD, plan.LowerBound, test.nodes, want)
				}
			}
		})
	}
}
