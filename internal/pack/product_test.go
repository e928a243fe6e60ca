package pack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEveryCombinationOfAClaimSuits: what launches a claim takes any type of its
// list in any zone and capacity type of its lists.
func TestEveryCombinationOfAClaimSuits(t *testing.T) {
	kind := func(name, arch string) InstanceType {
		it := InstanceType{Name: name, Labels: map[string]string{"arch": arch}, Capacity: Resources{CPU: 2000, Pods: 10}, Allocatable: Resources{CPU: 2000, Pods: 10}}
		for _, z := range []string{"a", "b"} {
			for i, c := range []string{Spot, OnDemand} {
				it.Offerings = append(it.Offerings, Offering{CapacityType: c, Zone: z, MicroUSD: int64(len(name)*100 + i*10), Available: true})
			}
		}
		return it
	}
	in := func(key, value string) Requirement {
		return Requirement{Key: key, Operator: In, Values: []string{value}}
	}
	p := Problem{
		WellKnown: []string{LabelZone, LabelCapacityType, LabelInstanceType, "arch"},
		Pools:     []Pool{{Name: "p", Types: []InstanceType{kind("arm", "arm64"), kind("amd", "amd64")}}},
	}
	for name, test := range map[string]struct {
		why     string
		daemons []Daemon
		spec    PodSpec
	}{
		"one or the other": {"on ARM, or else on demand: an AMD spot instance is neither", nil,
			PodSpec{Requests: Resources{CPU: 1500}, Affinity: [][]Requirement{{in("arch", "arm64")}, {in(LabelCapacityType, OnDemand)}}}},
		"a daemon in one zone": {"in zone b there is less room", []Daemon{{Name: "d", Spec: &PodSpec{Requests: Resources{CPU: 1000}, Affinity: [][]Requirement{{in(LabelZone, "b"), in("arch", "amd64")}}}}},
			PodSpec{Requests: Resources{CPU: 1500}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := p
			p.Daemons, p.Pods = test.daemons, []Pod{{Name: "pod", Spec: &test.spec}}
			plan, err := Solve(p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.NewNodes) != 1 || len(plan.Unschedulable) != 0 {
				t.Fatalf("want one node, got %+v", plan)
			}
			if err := combinations(p, plan); err != nil {
				t.Errorf("%v (%s)", err, test.why)
			}
			if n := plan.NewNodes[0]; len(n.Options)*len(n.Options[0].Offerings) < 4 {
				t.Errorf("too little is left to fall back to: %+v", n.Options)
			}
		})
	}
}

// combinations checks that each type of a new node that is for sale in a zone and
// capacity type that the node's requirements list is among the node's options so.
func combinations(p Problem, plan *Plan) error {
	for i, n := range plan.NewNodes {
		lists := map[string][]string{}
		for _, r := range n.Requirements {
			lists[r.Key] = r.Values
		}
		at := slices.IndexFunc(p.Pools, func(q Pool) bool { return q.Name == n.Pool })
		for _, typ := range p.Pools[at].Types {
			if !slices.Contains(lists[LabelInstanceType], typ.Name) {
				continue
			}
			for _, o := range typ.Offerings {
				if !o.Available || o.ReservationID != "" || !slices.Contains(lists[LabelZone], o.Zone) || !slices.Contains(lists[LabelCapacityType], o.CapacityType) || !allowedBy(n.Requirements, o.Labels) {
					continue
				}
				if !slices.ContainsFunc(n.Options, func(x Option) bool {
					return x.Type == typ.Name && slices.ContainsFunc(x.Offerings, func(y Offering) bool { return y.Zone == o.Zone && y.CapacityType == o.CapacityType })
				}) {
					return fmt.Errorf("new node %d may be launched as %s %s in %s, which does not suit: %+v", i, typ.Name, o.CapacityType, o.Zone, n.Options)
				}
			}
		}
	}
	return nil
}

func allowedBy(reqs []Requirement, labels map[string]string) bool {
	for _, r := range reqs {
		if v, ok := labels[r.Key]; ok {
			if set := r.Set(); !set.Has(v) {
				return false
			}
		}
	}
	return true
}

func TestEveryCombinationSuitsAtRandom(t *testing.T) {
	for seed := range 200 * cases(t) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 7)), allFeatures)
		plan, err := Solve(p, Options{Work: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := combinations(p, plan); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestMinValuesOfAClaim: a claim has the types that its pool's minValues ask for, all of
// them in each zone and capacity type that it lists.
func TestMinValuesOfAClaim(t *testing.T) {
	kind := func(name, arch string, usd, cpu int64) InstanceType {
		it := InstanceType{Name: name, Labels: map[string]string{"arch": arch}, Capacity: Resources{CPU: cpu, Pods: 10}, Allocatable: Resources{CPU: 2000, Pods: 10}}
		for i, c := range []string{Spot, OnDemand} {
			it.Offerings = append(it.Offerings, Offering{CapacityType: c, Zone: "a", MicroUSD: usd + int64(i)*10, Available: true})
		}
		return it
	}
	in := func(key, value string) Requirement {
		return Requirement{Key: key, Operator: In, Values: []string{value}}
	}
	armOrOnDemand := [][]Requirement{{in("arch", "arm64")}, {in(LabelCapacityType, OnDemand)}}
	for name, test := range map[string]struct {
		why      string
		types    []InstanceType
		limits   Resources
		affinity [][]Requirement
		pods     int
		nodes    int
		microUSD int64
	}{
		"all on demand": {"on ARM, or else on demand: the three have only the latter in common", []InstanceType{kind("arm", "arm64", 100, 2000), kind("amd1", "amd64", 110, 2000), kind("amd2", "amd64", 110, 2000)},
			nil, armOrOnDemand, 1, 1, 110},
		"no limit is in the way": {"four nodes of the smallest type, of which each may become the largest", []InstanceType{kind("x", "amd64", 100, 2000), kind("y", "amd64", 110, 3000), kind("z", "amd64", 120, 4000)},
			Resources{CPU: 16000}, nil, 4, 4, 400},
		"a limit is in the way": {"of two nodes only one can have all types", []InstanceType{kind("x", "amd64", 100, 2000), kind("y", "amd64", 110, 3000), kind("z", "amd64", 120, 4000)},
			Resources{CPU: 5000}, nil, 2, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			p := Problem{
				WellKnown: []string{LabelZone, LabelCapacityType, LabelInstanceType, "arch"},
				Pools:     []Pool{{Name: "p", Types: test.types, Limits: test.limits, Requirements: []Requirement{{Key: LabelInstanceType, Operator: Exists, MinValues: 3}}}},
			}
			for i := range test.pods {
				p.Pods = append(p.Pods, Pod{Name: fmt.Sprint(i), Spec: &PodSpec{Requests: Resources{CPU: 1500}, Affinity: test.affinity}})
			}
			for _, policy := range []MinValuesPolicy{Strict, BestEffort} {
				plan, err := Solve(p, Options{MinValues: policy})
				if err != nil {
					t.Fatal(err)
				}
				if policy == BestEffort {
					for i := range plan.NewNodes {
						if n := &plan.NewNodes[i]; n.Relaxed != (len(n.Options) < 3) {
							t.Errorf("best effort: relaxed is %v with %d types", n.Relaxed, len(n.Options))
						}
					}
					continue
				}
				if len(plan.NewNodes) != test.nodes || plan.MicroUSD != test.microUSD || len(plan.Unschedulable) != test.pods-test.nodes {
					t.Fatalf("want %d nodes for %d, got %+v (%s)", test.nodes, test.microUSD, plan, test.why)
				}
				for _, u := range plan.Unschedulable {
					if u.Reasons[0].Cause != LimitReached {
						t.Errorf("want the limit as the reason, got %+v", u.Reasons)
					}
				}
				for i := range plan.NewNodes {
					if err := minValuesHold(&p.Pools[0], &plan.NewNodes[i]); err != nil {
						t.Errorf("%v (%s)", err, test.why)
					}
				}
				if err := combinations(p, plan); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
