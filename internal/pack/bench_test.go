package pack

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// benchSolve measures planning for the pods on one pool of the types, in a state
// that holds both. Encoding is measured elsewhere: a controller's state is fed as
// the cluster changes.
func benchSolve(b *testing.B, types []InstanceType, pods []Pod, o Options) {
	b.Helper()
	s, err := NewState(Problem{Pools: []Pool{{Name: "default", Types: types}}, Pods: pods, WellKnown: []string{LabelZone, LabelCapacityType, LabelHostname}})
	if err != nil {
		b.Fatal(err)
	}
	var plan *Plan
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		plan = s.Solve(o)
	}
	cpu := cpuTime() - before
	if n := len(plan.Unschedulable); n > 0 {
		b.Fatalf("%d pods are unschedulable: %+v", n, plan.Unschedulable[0])
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N)/1000, "cpu-ms/op")
	b.ReportMetric(float64(len(pods))*float64(b.N)/cpu.Seconds(), "pods/cpu-s")
	b.ReportMetric(float64(len(plan.NewNodes)), "nodes")
	b.ReportMetric(float64(plan.MicroUSD)/1e6, "usd/h")
	b.ReportMetric(float64(plan.Gap())/10, "%gap")
}

// efforts are planning for its first answer and planning in full.
func efforts(b *testing.B, run func(b *testing.B, o Options)) {
	b.Run("first", func(b *testing.B) { run(b, Options{Work: -1}) })
	b.Run("full", func(b *testing.B) { run(b, Options{}) })
}

// BenchmarkPeer is the peer's own benchmark: 400 types, five kinds of pods.
func BenchmarkPeer(b *testing.B) {
	for _, n := range []int{1, 50, 100, 500, 1000, 2000, 5000, 10000, 20000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			pods := peerPods(n, rand.New(rand.NewPCG(1, uint64(n))))
			efforts(b, func(b *testing.B, o Options) { benchSolve(b, peerTypes(400), pods, o) })
		})
	}
}

// BenchmarkGeneric has the peer's generic pods alone.
func BenchmarkGeneric(b *testing.B) {
	for _, n := range []int{100, 500, 1000, 5000, 20000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			pods := genericPods(n, rand.New(rand.NewPCG(1, uint64(n))))
			efforts(b, func(b *testing.B, o Options) { benchSolve(b, peerTypes(400), pods, o) })
		})
	}
}

// BenchmarkPreferences has 4,000 pods that each would like a node of their own.
func BenchmarkPreferences(b *testing.B) {
	for name, policy := range map[string]Policy{"priced": Priced, "respect": Respect, "ignore": Ignore} {
		b.Run(name, func(b *testing.B) {
			pods := preferencePods(4000, rand.New(rand.NewPCG(1, 1)))
			efforts(b, func(b *testing.B, o Options) {
				o.Preferences = policy
				benchSolve(b, peerTypes(400), pods, o)
			})
		})
	}
}

// BenchmarkEndToEnd has the pods and types of the end-to-end scenarios.
func BenchmarkEndToEnd(b *testing.B) {
	for _, t := range []struct {
		name string
		most int64
	}{{"cap16", 16}, {"full", 256}} {
		for _, n := range []int{100, 500, 2000} {
			for _, zonal := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/pods=%d/zonal=%v", t.name, n, zonal), func(b *testing.B) {
					efforts(b, func(b *testing.B, o Options) { benchSolve(b, endToEndTypes(t.most), endToEndPods(n, zonal), o) })
				})
			}
		}
	}
}

// BenchmarkCatalogue has real types and prices.
func BenchmarkCatalogue(b *testing.B) {
	types := catalogueTypes("us-west-2", true)
	for _, n := range []int{100, 500, 2000} {
		r := func() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(n))) }
		for name, pods := range map[string][]Pod{"generic": genericPods(n, r()), "deployments": endToEndPods(n, false), "zonal": endToEndPods(n, true), "trace": tracePods(n, r())} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, n), func(b *testing.B) {
				efforts(b, func(b *testing.B, o Options) { benchSolve(b, types, pods, o) })
			})
		}
	}
}
