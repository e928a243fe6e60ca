package pack

import "testing"

// linear returns types of 1 to n vCPU with two GiB a vCPU, for sale on demand in
// three zones at a price in proportion.
func linear(n int) []InstanceType {
	var out []InstanceType
	for i := 1; i <= n; i++ {
		v := int64(i)
		t := InstanceType{
			Name:        "t" + string(rune('0'+i/10)) + string(rune('0'+i%10)),
			Labels:      map[string]string{"kubernetes.io/arch": "amd64"},
			Capacity:    Resources{CPU: 1000 * v, Memory: 2 * gib * v, Pods: 10 * v},
			Allocatable: Resources{CPU: 1000*v - 100, Memory: 2*gib*v - gib/10, Pods: 10 * v},
		}
		for _, z := range []string{"a", "b", "c"} {
			t.Offerings = append(t.Offerings, Offering{CapacityType: OnDemand, Zone: z, MicroUSD: 30000 * v, Available: true})
		}
		out = append(out, t)
	}
	return out
}

func TestSolvePlacesPodsOnOneNode(t *testing.T) {
	spec := &PodSpec{Requests: Resources{CPU: 1000, Memory: gib}}
	p := Problem{Pools: []Pool{{Name: "default", Types: linear(16)}}}
	for _, name := range []string{"a", "b", "c"} {
		p.Pods = append(p.Pods, Pod{Name: name, Spec: spec})
	}
	plan, err := Solve(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Unschedulable) != 0 || plan.MicroUSD < plan.LowerBound {
		t.Fatalf("got %+v", plan)
	}
}

func TestAMachineOnItsWayCountsWhereverItMayBe(t *testing.T) {
	// Its owner will see on demand as a domain without pods as soon as it is there.
	spread := &PodSpec{
		Requests: Resources{CPU: 1000, Memory: gib},
		Spread:   []Spread{{TopologyKey: LabelCapacityType, MaxSkew: 2, Selector: Selector{Requirements: []Requirement{{Key: "app", Operator: In, Values: []string{"a"}}}}}},
	}
	types := linear(16)
	for i := range types {
		for j := range types[i].Offerings {
			types[i].Offerings[j].CapacityType = Spot
		}
	}
	for name, test := range map[string]struct {
		why    string
		node   Node
		placed int
	}{
		"may be": {"one of what it may be is a domain with none", Node{Requirements: []Requirement{{Key: LabelCapacityType, Operator: In, Values: []string{Spot, OnDemand}}}}, 2},
		"won't":  {"spot is the only domain", Node{Requirements: []Requirement{{Key: LabelCapacityType, Operator: In, Values: []string{Spot}}}}, 4},
		"is":     {"a node of the other domain is there", Node{Labels: map[string]string{LabelCapacityType: OnDemand}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			test.node.Name, test.node.Allocatable = "full", Resources{CPU: 100, Memory: gib, Pods: 1}
			p := Problem{Pools: []Pool{{Name: "default", Types: types}}, Nodes: []Node{test.node}, WellKnown: []string{LabelZone, LabelCapacityType}}
			for _, name := range []string{"a", "b", "c", "d"} {
				p.Pods = append(p.Pods, Pod{Name: name, Labels: map[string]string{"app": "a"}, Spec: spread})
			}
			plan, err := Solve(p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if placed := len(p.Pods) - len(plan.Unschedulable); placed != test.placed {
				t.Errorf("%d pods have a place, want %d: %s", placed, test.placed, test.why)
			}
		})
	}
}
