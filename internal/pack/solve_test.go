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
