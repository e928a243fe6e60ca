package disrupt

import (
	"fmt"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// stage sets up a rehearsal of pool a with n nodes of one pod each, all drifted.
func stage(n int, pool func(*karpenter.NodePool), alter func(*scene)) *Rehearsal {
	watch := &Stopwatch{At: now}
	s := &scene{state: cluster.NewState(watch)}
	s.pool("a", func(p *karpenter.NodePool) {
		p.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: aws.Group, Kind: "EC2NodeClass", Name: "c"}
		p.Spec.Disruption.ConsolidationPolicy = karpenter.ConsolidationPolicyWhenEmpty
		if pool != nil {
			pool(p)
		}
	})
	for i := range n {
		node := fmt.Sprintf("n%04d", i)
		s.machine("a", node, 2, is(karpenter.ConditionDrifted, now))
		s.run(node, "pod-"+node, 2)
	}
	if alter != nil {
		alter(s)
	}
	return &Rehearsal{
		Clock: watch, State: s.state, Pools: map[string]*karpenter.NodePool{"a": s.pools[0]}, Types: map[string][]cloud.InstanceType{"a": offers()},
		Classes: map[string]*aws.EC2NodeClass{"c": {ObjectMeta: metav1.ObjectMeta{Name: "c"}}}, Guards: NewGuards(s.pdbs),
		Boot: time.Minute, Drain: func(cluster.Node) time.Duration { return 30 * time.Second }, Horizon: 7 * 24 * time.Hour, Steps: 2000,
	}
}

// anyTime is for cases in which it isn't the point when the last node goes.
const anyTime = -1

func TestRehearse(t *testing.T) {
	budget := func(b ...karpenter.Budget) func(*karpenter.NodePool) {
		return func(p *karpenter.NodePool) { p.Spec.Disruption.Budgets = b }
	}
	text := func(s string) *string { return &s }
	large := func(p *karpenter.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m.8"}}}
	}
	for name, tc := range map[string]struct {
		why   string
		nodes int
		pool  func(*karpenter.NodePool)
		alter func(*scene)
		gone  int
		// last is when the last goes.
		last time.Duration
		kept string
		pods int
		// others are pods on nodes that aren't drifted.
		others int
	}{
		"waves": {
			why:   "with no budget, one goes, then two, and then as many as double with each of these; a wave begins half a minute after the one before has gone, when its pods have done well",
			nodes: 8, pool: budget(), gone: 8, pods: 8, last: 5*time.Minute + 30*time.Second,
		},
		"one at a time": {
			why:   "a budget of one waits for each node's end; the second also waits until the pods of the first have done well, the third doesn't",
			nodes: 3, pool: budget(karpenter.Budget{Nodes: "1"}), gone: 3, pods: 3, last: 5 * time.Minute,
		},
		"never": {
			why:   "a budget of none keeps all for good",
			nodes: 3, pool: budget(karpenter.Budget{Nodes: "0"}), kept: "NoBudget",
		},
		"window": {
			why:   "what a window keeps goes when it ends: it is noon, and the window lasts until five",
			nodes: 1, pool: budget(karpenter.Budget{Nodes: "0", Schedule: text("0 9 * * *"), Duration: &metav1.Duration{Duration: 8 * time.Hour}}),
			gone: 1, pods: 1, last: 5*time.Hour + 90*time.Second,
		},
		"protected": {
			why:   "a pod that forbids it keeps its node, and the others go",
			nodes: 2, pool: budget(), gone: 1, pods: 1, last: 90 * time.Second, kept: "PodDoNotDisrupt",
			alter: func(s *scene) {
				s.run("n0000", "pod-n0000", 2, func(p *corev1.Pod) { p.Annotations[karpenter.AnnotationDoNotDisrupt] = "true" })
			},
		},
		"budget of pods": {
			why:   "a PodDisruptionBudget that allows nothing keeps the nodes",
			nodes: 2, pool: budget(), kept: "PodDisruptionBudget",
			alter: func(s *scene) {
				s.pdbs = append(s.pdbs, policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "x"},
					Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
				})
			},
		},
		"no place": {
			why:   "a pod that no type of the pool can hold keeps its node",
			nodes: 1, pool: budget(), kept: "NoPlace",
			alter: func(s *scene) { s.run("n0000", "pod-n0000", 64) },
		},
		"static": {
			why:   "a static pool's nodes are replaced as well, and it keeps its number of them",
			nodes: 3, gone: 3, pods: 3, last: anyTime,
			pool: func(p *karpenter.NodePool) {
				p.Spec.Replicas = new(int64(3))
				p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "1"}}
				large(p)
			},
		},
		"fewer": {
			why:   "a static pool that asks for fewer gives nodes away, budgets or not, and the others are replaced",
			nodes: 3, gone: 3, pods: 3, last: 90 * time.Second,
			pool: func(p *karpenter.NodePool) {
				p.Spec.Replicas = new(int64(1))
				p.Spec.Disruption.Budgets = nil
				large(p)
			},
		},
		"room": {
			why:   "pods go where there is room, and nothing is launched for them",
			nodes: 1, pool: budget(), gone: 1, pods: 1, last: 30 * time.Second, others: 1,
			alter: func(s *scene) { s.machine("a", "free", 8); s.run("free", "other", 1) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := stage(tc.nodes, tc.pool, tc.alter)
			p, err := r.Run()
			if err != nil {
				t.Fatal(err)
			}
			last := time.Duration(0)
			for _, d := range p.Departures {
				last = max(last, d.After)
			}
			kept := ""
			for _, b := range p.Kept {
				kept = b.Code
			}
			if len(p.Departures) != tc.gone || last != tc.last && tc.last != anyTime || kept != tc.kept || p.Moves != tc.pods || p.Cut {
				t.Errorf("%s: %d went, the last after %s, %d pods moved, %q keeps the others (cut short: %t); want %d, %s, %d, %q",
					tc.why, len(p.Departures), last, p.Moves, kept, p.Cut, tc.gone, tc.last, tc.pods, tc.kept)
			}
			var there int
			for _, n := range r.State.Snapshot().Nodes {
				there += len(n.Pods)
			}
			if want := tc.nodes + tc.others; there != want {
				t.Errorf("%s: %d pods run in the end, of %d", tc.why, there, want)
			}
			if len(p.Homeless) > 0 {
				t.Errorf("pods have no place: %v", p.Homeless)
			}
		})
	}
}

// TestRehearseBudgets: at no time are more nodes on their way out than the budget says,
// and the same stage gives the same performance.
func TestRehearseBudgets(t *testing.T) {
	run := func() Performance {
		p, err := stage(40, func(p *karpenter.NodePool) { p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "10%"}} }, nil).Run()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := run()
	if len(first.Departures) != 40 || len(first.Arrivals) != 40 {
		t.Fatalf("%d went and %d came, of 40", len(first.Departures), len(first.Arrivals))
	}
	at := map[time.Duration]int{}
	for _, d := range first.Departures {
		// Replacements count as the pool's nodes too: 10 % of 44 are 5.
		if at[d.After]++; at[d.After] > 5 {
			t.Errorf("more than 5 of 44 went at %s", d.After)
		}
	}
	if again := run(); fmt.Sprint(first) != fmt.Sprint(again) {
		t.Errorf("it isn't the same twice:\n%v\n%v", first, again)
	}
}

// TestRehearseDeletion: claims that go with their pool go at once, whatever the budgets.
func TestRehearseDeletion(t *testing.T) {
	r := stage(3, func(p *karpenter.NodePool) { p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "0"}} }, nil)
	r.Delete = []string{"claim-n0000", "claim-n0001", "claim-n0002"}
	r.Pools = map[string]*karpenter.NodePool{}
	p, err := r.Run()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Departures) != 3 || len(p.Homeless) != 3 || p.Waves != 1 {
		t.Errorf("%d went in %d waves, and %d pods have no place", len(p.Departures), p.Waves, len(p.Homeless))
	}
}

func BenchmarkRehearse(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			for b.Loop() {
				r := stage(n, func(p *karpenter.NodePool) { p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "10%"}} }, nil)
				p, err := r.Run()
				if err != nil || len(p.Departures) != n {
					b.Fatal(len(p.Departures), err)
				}
				b.ReportMetric(float64(p.Waves), "waves")
			}
		})
	}
}
