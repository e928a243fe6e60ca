package pack

import (
	"fmt"
	"testing"
)

// distinctPods are n pods of which no two ask for the same, as where requests are
// tuned for each workload, and how each four of them are kept apart, if at all.
func distinctPods(n int, how string) []Pod {
	out := make([]Pod, n)
	for i := range out {
		app := fmt.Sprint(i / 4)
		s := &PodSpec{Requests: Resources{CPU: 50 + int64(i*7919)%2000, Memory: (64 + int64(i)*int64(i)%6000) * mib}}
		switch how {
		case "apart":
			s.PodAntiAffinity = []PodTerm{{TopologyKey: LabelHostname, Selector: labelled("app", app)}}
		case "zonal":
			s.Spread = []Spread{{TopologyKey: LabelZone, MaxSkew: 1, Selector: labelled("app", app)}}
		}
		out[i] = Pod{Name: fmt.Sprintf("pod-%05d", i), Namespace: "default", Labels: map[string]string{"app": app}, Spec: s}
	}
	return out
}

// BenchmarkDistinct has pods of which no two ask for the same.
func BenchmarkDistinct(b *testing.B) {
	for _, how := range []string{"plain", "apart", "zonal"} {
		for _, n := range []int{500, 2000, 5000} {
			b.Run(fmt.Sprintf("%s/pods=%d", how, n), func(b *testing.B) {
				efforts(b, catalogueTypes("us-west-2", true), distinctPods(n, how), Options{})
			})
		}
	}
}

// TestManyNodesWithValuesOfTheirOwn: a label may have a value of its own on each of more
// nodes than 16 bits count.
func TestManyNodesWithValuesOfTheirOwn(t *testing.T) {
	const nodes, pods = 33_000, 100
	p := Problem{}
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		r := Resources{CPU: 1000, Pods: 10}
		p.Nodes = append(p.Nodes, Node{Name: name, Labels: map[string]string{"x/host": name, LabelHostname: name}, Capacity: r, Allocatable: r, Initialized: true})
	}
	s := &PodSpec{Requests: Resources{CPU: 100}, Spread: []Spread{{TopologyKey: "x/host", MaxSkew: 1, Selector: labelled("app", "a")}}}
	for i := range pods {
		p.Pods = append(p.Pods, Pod{Name: fmt.Sprint(i), Namespace: "default", Labels: map[string]string{"app": "a"}, Spec: s})
	}
	plan, err := Solve(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, a := range plan.Assignments {
		used[a.Node] = true
	}
	if len(used) != pods {
		t.Errorf("%d pods are spread over %d nodes", pods, len(used))
	}
}

// TestManyShapesPackWell: with more sizes than are looked at for each pod, the first
// plan still is near to the bound, and all pods have a place when time is up at once.
func TestManyShapesPackWell(t *testing.T) {
	types := catalogueTypes("us-west-2", true)
	for name, test := range map[string]struct {
		why  string
		most int64 // thousandths over the bound; 9.0 and 9.4 % were measured
		how  string
	}{
		"plain": {"any node suits", 100, "plain"},
		"zonal": {"a quarter of the sizes is in each zone", 105, "zonal"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Problem{Pools: []Pool{{Name: "default", Types: types}}, Pods: distinctPods(2000, test.how), WellKnown: []string{LabelZone, LabelCapacityType, LabelHostname}}
			first, err := Solve(p, Options{Work: -1})
			if err != nil {
				t.Fatal(err)
			}
			if first.Gap() > test.most || len(first.Unschedulable) > 0 {
				t.Errorf("gap %d ‰, %d pods without a place (%s)", first.Gap(), len(first.Unschedulable), test.why)
			}
			stopped, err := Solve(p, Options{Stop: func() bool { return true }})
			if err != nil {
				t.Fatal(err)
			}
			if len(stopped.Unschedulable) > 0 || stopped.MicroUSD <= first.MicroUSD {
				t.Errorf("without time: cost %d, with it %d; %d pods without a place", stopped.MicroUSD, first.MicroUSD, len(stopped.Unschedulable))
			}
		})
	}
}
