package disrupt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// mixed is n pods of five shapes, as in the comparison.
func mixed(n int) []*app {
	var out []*app
	for i, s := range [][2]int64{{100, 128}, {500, 1024}, {1000, 2048}, {2000, 8192}, {4000, 16384}} {
		out = append(out, &app{name: fmt.Sprintf("mixed-%d", i+1), replicas: n / 5, milliCPU: s[0], mib: s[1]})
	}
	return out
}

// TestScaleDownPlayed is the comparison's scale-down in a time of its own. Its bars are
// those that were measured of the peer, which ended at 1.05 to 1.16 of the lower bound
// after 44 to 172 s with 86 to 136 pods moved.
func TestScaleDownPlayed(t *testing.T) {
	for name, inTurn := range map[string]bool{"packed at once": false, "packed in turn": true} {
		t.Run(name, func(t *testing.T) {
			const seeds = 2
			sum := 0.0
			for seed := range uint64(seeds) {
				f := newFleet(t, seed, 3*time.Second, inTurn, func(p *karpenter.NodePool) {
					requires(p, karpenter.LabelCapacityType, corev1.NodeSelectorOpIn, karpenter.CapacityTypeOnDemand)
					requires(p, aws.LabelInstanceCPU, corev1.NodeSelectorOpLt, "17")
				}, mixed(500)...)
				before, had := f.price()
				f.use(func(p *karpenter.NodePool) {
					p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmptyOrUnderutilized
					p.Spec.Disruption.ConsolidateAfter = karpenter.After(0)
					p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "100%"}}
				})
				f.shrink(func(a *app) int { return a.replicas * 4 / 10 }, 100, 4*time.Minute)
				t.Logf("seed %d: %d nodes, %.2f $/h; then %v", seed, had, before, f)
				t.Log(strings.Join(f.found, "\n"))
				usd, _ := f.price()
				sum += usd / f.lower() / seeds
				if settled := f.last.Sub(f.began); settled > 44*time.Second || f.created > 136 {
					t.Errorf("seed %d: settled after %s with %d pods moved", seed, settled, f.created)
				}
			}
			t.Logf("on average %.3f of the lower bound", sum)
			if sum > 1.07 {
				t.Errorf("on average %.3f of the lower bound, want at most 1.07", sum)
			}
		})
	}
}

// constrained is n apps of many sizes, as in the comparison's trough.
func constrained(n int) []*app {
	r := rand.New(rand.NewPCG(5, 40))
	milliCPU, perCore := []int64{250, 500, 750, 1000, 1500, 2000}, []int64{1024, 2048, 4096, 7168}
	var out []*app
	for i := range n {
		cpu := milliCPU[r.IntN(len(milliCPU))]
		a := &app{name: fmt.Sprintf("trough-%02d", i+1), milliCPU: cpu, zones: true, hosts: true, one: true}
		a.replicas = 2 + r.IntN(19)
		a.mib = cpu * perCore[r.IntN(len(perCore))] / 1000
		out = append(out, a)
	}
	return out
}

// BenchmarkTrough is the comparison's constrained trough in a time of its own. What is
// left must not cost more than the same pods packed anew would, by a tenth.
func BenchmarkTrough(b *testing.B) {
	for _, spotToSpot := range []bool{false, true} {
		b.Run(fmt.Sprintf("spotToSpot=%v", spotToSpot), func(b *testing.B) {
			for b.Loop() {
				f := newFleet(b, 1, 3*time.Second, false, func(p *karpenter.NodePool) {
					requires(p, karpenter.LabelCapacityType, corev1.NodeSelectorOpIn, karpenter.CapacityTypeOnDemand, karpenter.CapacityTypeSpot)
					requires(p, aws.LabelInstanceCPU, corev1.NodeSelectorOpGt, "1")
					requires(p, aws.LabelInstanceCPU, corev1.NodeSelectorOpLt, "33")
				}, constrained(40)...)
				f.tick, f.spotToSpot = time.Second, spotToSpot
				f.use(func(p *karpenter.NodePool) {
					p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmptyOrUnderutilized
					p.Spec.Disruption.ConsolidateAfter = karpenter.After(30 * time.Second)
					p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "10%"}}
				})
				before, _ := f.price()
				f.shrink(func(a *app) int { return max(1, int(math.Round(0.45*float64(a.replicas)))) }, 100, 15*time.Minute)
				usd, _ := f.price()
				b.ReportMetric(before, "usd/h-before")
				b.ReportMetric(usd, "usd/h-after")
				b.ReportMetric(usd/f.fresh(), "of-packed-anew")
				b.ReportMetric(usd/f.lower(), "of-lower-bound")
				b.ReportMetric(f.last.Sub(f.began).Seconds(), "s-to-settle")
				b.ReportMetric(float64(f.created), "pods-moved")
				if usd > 1.1*f.fresh() {
					b.Errorf("%.2f $/h, %.2f packed anew", usd, f.fresh())
				}
			}
		})
	}
}

// price is what the nodes cost, in dollars an hour.
func (f *fleet) price() (usd float64, nodes int) {
	for _, n := range f.State.Of("general") {
		nodes++
		for _, t := range f.Types["general"] {
			if t.Name != n.Claim.Labels[corev1.LabelInstanceTypeStable] {
				continue
			}
			for _, o := range t.Offerings {
				if o.Zone == n.Claim.Labels[corev1.LabelTopologyZone] && o.CapacityType == n.Claim.Labels[karpenter.LabelCapacityType] {
					usd += float64(o.MicroUSD) / 1e6
				}
			}
		}
	}
	return usd, nodes
}

// anew is the plan of the pods that are there on new nodes alone.
func (f *fleet) anew() *pack.Plan {
	var names []string
	for _, n := range f.State.Of("general") {
		names = append(names, n.Name())
	}
	m := cluster.NewModel()
	if err := m.Sync(f.State, f.open); err != nil {
		f.t.Fatal(err)
	}
	return m.Core().WhatIf(pack.Change{Without: names}, pack.Options{})
}

// lower is what the pods that are there cost at least, in dollars an hour.
func (f *fleet) lower() float64 { return float64(f.anew().LowerBound) / 1e6 }

// fresh is what they would cost on new nodes alone.
func (f *fleet) fresh() float64 { return float64(f.anew().MicroUSD) / 1e6 }

func (f *fleet) String() string {
	usd, nodes := f.price()
	lower := f.lower()
	return fmt.Sprintf("%d nodes, %.2f $/h, %.3f of the lower bound, settled after %.0f s, %d pods moved, %.3f $ spent", nodes, usd, usd/lower, f.last.Sub(f.began).Seconds(), f.created, f.usd)
}
