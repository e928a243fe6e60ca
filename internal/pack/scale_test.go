package pack

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// fleet is a cluster that runs perNode pods of Deployments on each node of 8 cores.
// A third of the Deployments spread over zones, a tenth keep off each other's nodes,
// the others have no constraints. Nodes of a tight fleet have no more than what their
// pods ask for, so that whatever moves needs a new node.
func fleet(nodes, perNode, shapes int, tight bool, types []InstanceType, r *rand.Rand) Problem {
	p := Problem{Pools: []Pool{{Name: "default", Types: types}}, WellKnown: []string{LabelZone, LabelCapacityType, LabelHostname}}
	var zones []string
	for _, t := range types {
		for _, o := range t.Offerings {
			if !slices.Contains(zones, o.Zone) {
				zones = append(zones, o.Zone)
			}
		}
	}
	slices.Sort(zones)
	specs, labels := make([]*PodSpec, shapes), make([]map[string]string, shapes)
	for i := range specs {
		app := fmt.Sprintf("app-%d", i)
		labels[i] = map[string]string{"app": app}
		specs[i] = &PodSpec{Requests: Resources{CPU: pick[int64](r, 100, 250, 500, 1000), Memory: pick[int64](r, 256, 512, 1024, 2048) * mib}}
		switch {
		case i%10 == 9:
			specs[i].PodAntiAffinity = []PodTerm{{TopologyKey: LabelHostname, Selector: labelled("app", app)}}
		case i%3 == 0:
			specs[i].Spread = []Spread{{TopologyKey: LabelZone, MaxSkew: 1, Selector: labelled("app", app)}}
		}
	}
	capacity := Resources{CPU: 8000, Memory: 32 * gib, Pods: 110}
	allocatable := Resources{CPU: 7900, Memory: 32*gib - 100*mib, Pods: 110}
	for i := range nodes {
		name := fmt.Sprintf("node-%06d", i)
		zone := zones[i%len(zones)]
		p.Nodes = append(p.Nodes, Node{
			Name: name, Pool: "default", Capacity: capacity, Allocatable: allocatable, MicroUSD: 232_000, Initialized: true,
			Labels: map[string]string{LabelHostname: name, LabelZone: zone, LabelPool: "default", LabelInstanceType: "m-8x", LabelCapacityType: OnDemand},
		})
		for j := range perNode {
			n := i*perNode + j
			// Pods that lie next to each other are of different Deployments, and each
			// Deployment's go round the zones.
			at := (n + i/len(zones)) % shapes
			if tight {
				if j == 0 {
					p.Nodes[i].Allocatable = Resources{Pods: 110}
				}
				p.Nodes[i].Allocatable[CPU] += specs[at].Requests[CPU]
				p.Nodes[i].Allocatable[Memory] += specs[at].Requests[Memory]
			}
			p.Pods = append(p.Pods, Pod{Name: fmt.Sprintf("pod-%07d", n), Namespace: "default", Labels: labels[at], Node: name, Spec: specs[at]})
		}
	}
	return p
}

// BenchmarkWhatIf asks what became of the pods if some nodes were gone; with all of
// them it packs the fleet anew.
func BenchmarkWhatIf(b *testing.B) {
	for _, t := range []struct {
		name  string
		types []InstanceType
	}{{"types=36", endToEndTypes(256)}, {"types=800", catalogueTypes("us-west-2", true)}} {
		for _, gone := range []int{1, -1, 10, 100, 1000} {
			tight := gone < 0
			gone = max(gone, 1)
			b.Run(fmt.Sprintf("%s/nodes=1000/gone=%d/tight=%v", t.name, gone, tight), func(b *testing.B) {
				p := fleet(1000, 10, 50, tight, t.types, rand.New(rand.NewPCG(1, 1)))
				s, err := NewState(p)
				if err != nil {
					b.Fatal(err)
				}
				var without []string
				at, opened, unschedulable := 0, 0, 0
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					without = without[:0]
					for range gone {
						at = (at + 7) % len(p.Nodes)
						without = append(without, p.Nodes[at].Name)
					}
					plan := s.WhatIf(Change{Without: without, OnlyMoved: true}, Options{Work: -1})
					opened, unschedulable = opened+len(plan.NewNodes), unschedulable+len(plan.Unschedulable)
				}
				b.ReportMetric(float64(b.N)/(cpuTime()-before).Seconds(), "whatifs/cpu-s")
				b.ReportMetric(float64(opened)/float64(b.N), "nodes")
				b.ReportMetric(float64(unschedulable)/float64(b.N), "left")
			})
		}
	}
}

// BenchmarkScale shows what grows with what: one thing at a time, then the largest
// clusters that are known of. A state is told of changes as a controller's is, then
// places pending pods.
func BenchmarkScale(b *testing.B) {
	type size struct {
		nodes, perNode, types, shapes, pending int
		tight                                  bool
	}
	base := size{10_000, 10, 400, 1_000, 10_000, false}
	sizes := []size{base}
	vary := func(set func(*size, int), values ...int) {
		for _, v := range values {
			z := base
			set(&z, v)
			sizes = append(sizes, z)
		}
	}
	vary(func(z *size, v int) { z.nodes = v }, 1_000, 100_000)
	vary(func(z *size, v int) { z.perNode = v }, 5, 15)
	vary(func(z *size, v int) { z.types = v }, 50, 800)
	vary(func(z *size, v int) { z.shapes = v }, 10, 100, 10_000)
	vary(func(z *size, v int) { z.pending = v }, 100, 1_000, 50_000)
	vary(func(z *size, v int) { z.nodes, z.tight = v, true }, 1_000, 10_000, 100_000)
	for _, z := range sizes {
		b.Run(fmt.Sprintf("nodes=%d/running=%d/types=%d/shapes=%d/pending=%d/tight=%v", z.nodes, z.nodes*z.perNode, z.types, z.shapes, z.pending, z.tight), func(b *testing.B) {
			before := heap()
			p := fleet(z.nodes, z.perNode, z.shapes, z.tight, peerTypes(z.types), rand.New(rand.NewPCG(1, 1)))
			s, err := NewState(p)
			if err != nil {
				b.Fatal(err)
			}
			pending := make([]Pod, z.pending)
			for i := range pending {
				pending[i] = p.Pods[i%len(p.Pods)]
				pending[i].Name, pending[i].Node = fmt.Sprintf("new-%05d", i), ""
				if err := s.SetPod(pending[i]); err != nil {
					b.Fatal(err)
				}
			}
			moving := slices.Clone(p.Pods[:1000])
			p = Problem{}
			held := heap() - before
			event := 0
			// events lets pods go and come again.
			events := func(n int) {
				for range n / 2 {
					event = (event + 1) % len(moving)
					s.RemovePod(moving[event].Name)
					if err := s.SetPod(moving[event]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.Run("place", func(b *testing.B) {
				s.Solve(Options{Work: -1})
				var plan *Plan
				b.ReportAllocs()
				for b.Loop() {
					events(100)
					plan = s.Solve(Options{Work: -1})
				}
				b.ReportMetric(float64(held)/(1<<20), "held-MiB")
				b.ReportMetric(float64(len(plan.NewNodes)), "nodes")
				b.ReportMetric(float64(len(plan.Unschedulable)), "left")
			})
			b.Run("events=1000", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					events(1000)
				}
			})
			runtime.KeepAlive(s)
		})
	}
}

// heap is the live heap in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
