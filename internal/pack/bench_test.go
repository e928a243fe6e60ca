package pack

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// An effort is how much of the work is measured.
type effort struct {
	name string
	work int
	cold bool
}

// efforts are, of an empty cluster with one pool of the types:
//
//	cold   all there is: laying out types, encoding pods, the first plan, writing it down
//	first  the first plan from a state that is kept, as a controller's is
//	full   the same and the search for a cheaper one, without a limit on time
//
// The peer's own figures leave out its encoding.
func efforts(b *testing.B, types []InstanceType, pods []Pod, o Options) {
	for _, e := range []effort{{"cold", -1, true}, {"first", -1, false}, {"full", 0, false}} {
		b.Run(e.name, func(b *testing.B) {
			o := o
			o.Work = e.work
			problem := Problem{Pools: []Pool{{Name: "default", Types: types}}, Pods: pods, WellKnown: []string{LabelZone, LabelCapacityType, LabelHostname}}
			s, err := NewState(problem)
			if err != nil {
				b.Fatal(err)
			}
			var plan *Plan
			b.ReportAllocs()
			before := cpuTime()
			for b.Loop() {
				if e.cold {
					if s, err = NewState(problem); err != nil {
						b.Fatal(err)
					}
				}
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
		})
	}
}

// BenchmarkPeer is the peer's own benchmark: 400 types, five kinds of pods.
func BenchmarkPeer(b *testing.B) {
	for _, n := range []int{1, 50, 100, 500, 1000, 2000, 5000, 10000, 20000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			pods := peerPods(n, rand.New(rand.NewPCG(1, uint64(n))))
			efforts(b, peerTypes(400), pods, Options{})
		})
	}
}

// BenchmarkGeneric has the peer's generic pods alone.
func BenchmarkGeneric(b *testing.B) {
	for _, n := range []int{500, 1000, 2000, 5000, 20000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			pods := genericPods(n, rand.New(rand.NewPCG(1, uint64(n))))
			efforts(b, peerTypes(400), pods, Options{})
		})
	}
}

// BenchmarkPreferences has 4,000 pods that each would like a node of their own.
func BenchmarkPreferences(b *testing.B) {
	for name, policy := range map[string]Policy{"priced": Priced, "respect": Respect, "ignore": Ignore} {
		b.Run(name, func(b *testing.B) {
			pods := preferencePods(4000, rand.New(rand.NewPCG(1, 1)))
			efforts(b, peerTypes(400), pods, Options{Preferences: policy})
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
					efforts(b, endToEndTypes(t.most), endToEndPods(n, zonal), Options{})
				})
			}
		}
	}
	b.Run("cap16/pods=200/apart", func(b *testing.B) { efforts(b, endToEndTypes(16), apartPods(200), Options{}) })
}

// BenchmarkCatalogue has real types and prices.
func BenchmarkCatalogue(b *testing.B) {
	types := catalogueTypes("us-west-2", true)
	for _, n := range []int{100, 500, 2000} {
		r := func() *rand.Rand { return rand.New(rand.NewPCG(1, uint64(n))) }
		for name, pods := range map[string][]Pod{"generic": genericPods(n, r()), "deployments": endToEndPods(n, false), "zonal": endToEndPods(n, true), "trace": tracePods(n, r())} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, n), func(b *testing.B) {
				efforts(b, types, pods, Options{})
			})
		}
	}
}
