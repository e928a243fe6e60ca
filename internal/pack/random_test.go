package pack

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// features says what a random problem may contain.
type features struct {
	labels, taints, limits, daemons, nodes, topology, affinity, preferences, ports, volumes, reserved, minValues, custom, apart bool
	pods, types                                                                                                                 int
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// randomProblem makes a small problem of what f allows.
func randomProblem(r *rand.Rand, f features) Problem {
	p := Problem{WellKnown: []string{LabelZone, LabelCapacityType, LabelInstanceType, "arch", "gpu", LabelHostname}}
	zones := []string{"a", "b", "c"}
	var types []InstanceType
	for i := range 1 + r.IntN(f.types) {
		v := int64(1 + r.IntN(8))
		t := InstanceType{
			Name:        fmt.Sprintf("t%d", i),
			Labels:      map[string]string{"arch": pick(r, "amd64", "arm64"), "cpus": fmt.Sprint(v)},
			Capacity:    Resources{CPU: 1000 * v, Memory: v * pick[int64](r, 2, 4, 8), Pods: int64(3 + r.IntN(8))},
			Allocatable: Resources{},
		}
		for k, q := range t.Capacity {
			t.Allocatable[k] = q
		}
		t.Allocatable[CPU] -= 100
		if chance(r, 20) {
			t.Labels["gpu"] = "a"
			t.Allocatable["gpu"], t.Capacity["gpu"] = 2, 2
		}
		if f.volumes && chance(r, 60) {
			t.Attach = map[string]int{"ebs": 1 + r.IntN(3)}
		}
		for _, z := range zones[:1+r.IntN(3)] {
			for _, c := range []string{Spot, OnDemand} {
				if chance(r, 70) {
					price := v*20000 + r.Int64N(10000)
					if c == Spot {
						price /= 2
					}
					t.Offerings = append(t.Offerings, Offering{CapacityType: c, Zone: z, Labels: map[string]string{"zone-id": "id-" + z}, MicroUSD: price, Available: chance(r, 90)})
				}
			}
		}
		if f.reserved && chance(r, 30) {
			t.Offerings = append(t.Offerings, Offering{CapacityType: Reserved, Zone: "a", MicroUSD: 1, Available: true, ReservationID: t.Name, ReservedCount: r.IntN(3)})
		}
		types = append(types, t)
	}
	randomReq := func() Requirement {
		switch r.IntN(7) {
		case 0:
			return Requirement{Key: LabelZone, Operator: pick(r, In, NotIn), Values: []string{pick(r, zones...), pick(r, zones...)}}
		case 1:
			return Requirement{Key: "arch", Operator: pick(r, In, NotIn), Values: []string{pick(r, "amd64", "arm64")}}
		case 2:
			return Requirement{Key: "cpus", Operator: pick(r, Gt, Lt, Gte, Lte), Values: []string{fmt.Sprint(r.IntN(8))}}
		case 3:
			return Requirement{Key: LabelCapacityType, Operator: In, Values: []string{pick(r, Spot, OnDemand)}}
		case 4:
			return Requirement{Key: "gpu", Operator: pick(r, Exists, DoesNotExist)}
		case 5:
			if f.custom {
				return Requirement{Key: "team", Operator: pick(r, In, NotIn, Exists, DoesNotExist), Values: nil}.withValues(pick(r, "x", "y", "z"))
			}
			return Requirement{Key: "zone-id", Operator: In, Values: []string{"id-" + pick(r, zones...)}}
		}
		return Requirement{Key: LabelInstanceType, Operator: NotIn, Values: []string{fmt.Sprintf("t%d", r.IntN(3))}}
	}
	for i := range 1 + r.IntN(2) {
		pool := Pool{Name: fmt.Sprintf("pool%d", i), Weight: r.IntN(2) * 10, Types: types, Labels: map[string]string{"pool-label": fmt.Sprint(i)}}
		if f.labels && chance(r, 40) {
			pool.Requirements = append(pool.Requirements, Requirement{Key: LabelZone, Operator: In, Values: zones[:1+r.IntN(3)]})
		}
		if f.custom {
			pool.Requirements = append(pool.Requirements, pick(r,
				Requirement{Key: "team", Operator: In, Values: []string{"x", "y"}},
				Requirement{Key: "team", Operator: Exists},
				Requirement{Key: "team", Operator: NotIn, Values: []string{"z"}}))
		}
		if f.taints && chance(r, 30) {
			pool.Taints = []Taint{{Key: "dedicated", Value: "x", Effect: pick(r, NoSchedule, NoExecute, PreferNoSchedule)}}
		}
		if f.limits && chance(r, 60) {
			pool.Limits = Resources{pick(r, CPU, NodeCount): int64(2 + r.IntN(4))}
			if q, ok := pool.Limits[CPU]; ok {
				pool.Limits[CPU] = q * 3000
			}
		}
		if f.minValues && chance(r, 60) {
			pool.Requirements = append(pool.Requirements, Requirement{Key: LabelInstanceType, Operator: Exists, MinValues: 1 + r.IntN(3)})
		}
		p.Pools = append(p.Pools, pool)
	}
	if f.limits && chance(r, 30) {
		p.Limits = Resources{CPU: int64(6000 + r.IntN(4)*3000)}
	}
	if f.daemons {
		for i := range r.IntN(3) {
			s := &PodSpec{Requests: Resources{CPU: 100 * int64(r.IntN(4))}, Tolerations: []Toleration{{Exists: true}}}
			if chance(r, 40) {
				s.NodeSelector = []Requirement{randomReq()}
			}
			if f.ports && chance(r, 40) {
				s.HostPorts = []HostPort{{Port: 80, Protocol: "TCP"}}
			}
			p.Daemons = append(p.Daemons, Daemon{Name: fmt.Sprintf("d%d", i), Spec: s})
		}
	}
	selector := func() Selector {
		return Selector{Requirements: []Requirement{{Key: "app", Operator: In, Values: []string{pick(r, "1", "2", "3")}}}}
	}
	term := func() PodTerm {
		t := PodTerm{TopologyKey: pick(r, LabelZone, LabelHostname, LabelHostname, LabelCapacityType), Selector: selector()}
		if f.apart {
			t.TopologyKey = LabelHostname
		}
		if chance(r, 20) {
			t.AllNamespaces = true
		}
		return t
	}
	var specs []*PodSpec
	for range 1 + r.IntN(4) {
		s := &PodSpec{Requests: Resources{CPU: pick[int64](r, 100, 250, 900, 1000, 2000, 3500), Memory: int64(1 + r.IntN(4))}}
		if chance(r, 8) {
			s.Requests["gpu"] = 1
		}
		if f.labels && chance(r, 35) {
			s.NodeSelector = []Requirement{randomReq()}
		}
		if f.labels && chance(r, 15) {
			s.Affinity = [][]Requirement{{randomReq()}, {randomReq(), randomReq()}}
		}
		if f.taints && chance(r, 50) {
			s.Tolerations = []Toleration{{Key: "dedicated", Exists: true}}
		}
		if f.topology && chance(r, 50) {
			s.Spread = append(s.Spread, Spread{TopologyKey: pick(r, LabelZone, LabelZone, LabelHostname, LabelCapacityType), MaxSkew: int32(1 + r.IntN(2)), MinDomains: int32(r.IntN(3)),
				Selector: selector(), IgnoreAffinity: chance(r, 30), HonorTaints: chance(r, 30), ScheduleAnyway: f.preferences && chance(r, 30)})
			if chance(r, 25) {
				s.Spread = append(s.Spread, Spread{TopologyKey: LabelHostname, MaxSkew: 1, Selector: selector()})
			}
		}
		if f.apart && chance(r, 60) {
			s.Spread = []Spread{{TopologyKey: LabelHostname, MaxSkew: int32(1 + r.IntN(2)), Selector: selector()}}
		}
		if f.affinity && !f.apart && chance(r, 25) {
			s.PodAffinity = append(s.PodAffinity, term())
		}
		if f.affinity && chance(r, 30) {
			s.PodAntiAffinity = append(s.PodAntiAffinity, term())
		}
		if f.preferences && chance(r, 50) {
			s.Preferred = append(s.Preferred, Preference{Weight: int32(1 + r.IntN(100)), Requirements: []Requirement{randomReq()}})
			s.PreferredPodAntiAffinity = append(s.PreferredPodAntiAffinity, WeightedPodTerm{Weight: int32(1 + r.IntN(100)), PodTerm: term()})
			if chance(r, 30) {
				s.PreferredPodAffinity = append(s.PreferredPodAffinity, WeightedPodTerm{Weight: 5, PodTerm: term()})
			}
		}
		if f.ports && chance(r, 25) {
			s.HostPorts = []HostPort{{Port: pick[int32](r, 80, 81), Protocol: "TCP", IP: pick(r, "", "10.0.0.1")}}
		}
		if f.volumes && chance(r, 40) {
			v := Volume{Name: "shared", Driver: "ebs"}
			if chance(r, 50) {
				v.Terms = [][]Requirement{{{Key: LabelZone, Operator: In, Values: []string{pick(r, zones...)}}}}
			}
			s.Volumes = append(s.Volumes, v)
		}
		specs = append(specs, s)
	}
	if f.nodes {
		for i := range r.IntN(4) {
			t := types[r.IntN(len(types))]
			if len(t.Offerings) == 0 {
				continue
			}
			o := t.Offerings[r.IntN(len(t.Offerings))]
			n := Node{Name: fmt.Sprintf("n%d", i), Pool: p.Pools[0].Name, Capacity: t.Capacity, Allocatable: t.Allocatable, Attach: t.Attach, Initialized: chance(r, 60), MicroUSD: o.MicroUSD}
			n.Labels = map[string]string{LabelPool: n.Pool, LabelInstanceType: t.Name, LabelZone: o.Zone, LabelCapacityType: o.CapacityType, LabelHostname: n.Name}
			for k, v := range t.Labels {
				n.Labels[k] = v
			}
			for k, v := range o.Labels {
				n.Labels[k] = v
			}
			for k, v := range p.Pools[0].Labels {
				n.Labels[k] = v
			}
			n.Taints = p.Pools[0].Taints
			if !n.Initialized && chance(r, 30) {
				delete(n.Labels, LabelZone)
				delete(n.Labels, "zone-id")
				n.Requirements = []Requirement{{Key: LabelZone, Operator: In, Values: zones[:2]}}
			}
			p.Nodes = append(p.Nodes, n)
		}
	}
	pod := func(name string) Pod {
		return Pod{Name: name, Namespace: pick(r, "default", "default", "other"), Labels: map[string]string{"app": pick(r, "1", "2", "3")}, Spec: specs[r.IntN(len(specs))]}
	}
	for i := range 1 + r.IntN(f.pods) {
		p.Pods = append(p.Pods, pod(fmt.Sprintf("p%02d", i)))
	}
	for i, n := range p.Nodes {
		for j := range r.IntN(3) {
			q := pod(fmt.Sprintf("run%d-%d", i, j))
			s := *q.Spec
			s.Requests = Resources{CPU: 100, Memory: 1}
			s.HostPorts, s.Volumes = nil, nil
			q.Node, q.Spec, q.Leaving = n.Name, &s, (i+j)%4 == 3
			p.Pods = append(p.Pods, q)
		}
	}
	for i := range p.Pods {
		// Every pod has volumes of its own.
		if vols := p.Pods[i].Spec.Volumes; len(vols) > 0 {
			s := *p.Pods[i].Spec
			s.Volumes = append([]Volume(nil), vols...)
			for j := range s.Volumes {
				s.Volumes[j].Name = fmt.Sprintf("%s-%d", p.Pods[i].Name, j)
			}
			p.Pods[i].Spec = &s
		}
	}
	return p
}

func (r Requirement) withValues(v string) Requirement {
	if r.Operator == In || r.Operator == NotIn {
		r.Values = []string{v}
	}
	return r
}

// cases is how many times more cases than usual are to be tried: COPPICE_CASES in
// the environment, by default one.
func cases(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("COPPICE_CASES")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("COPPICE_CASES: %v", err)
	}
	return n
}
