package disrupt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// moment is a time around a change of the clocks or a leap day, mostly.
func moment(r *rand.Rand) time.Time {
	moments := []time.Time{
		time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC), // New York
		time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC), // Berlin
		time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC), time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC),
	}
	return moments[r.IntN(len(moments))].Add(time.Duration(r.IntN(48*3600)-24*3600) * time.Second)
}

// schedule is a cron schedule.
func schedule(r *rand.Rand) string {
	field := func(most, least int) string {
		if r.IntN(2) == 0 {
			return "*"
		}
		return fmt.Sprint(least + r.IntN(most-least+1))
	}
	return fmt.Sprintf("%s %s %s * %s", field(59, 0), field(23, 0), field(31, 1), field(6, 0))
}

// TestAllowedOverRandomSchedules counts what goes already over 10,000 random budgets:
// what is left is what the budget that binds most allows, less that.
func TestAllowedOverRandomSchedules(t *testing.T) {
	s := newScene()
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for i := range 20 {
		s.machine("a", fmt.Sprintf("n%02d", i), 2, func(c *karpenter.NodeClaim, n *corev1.Node) {
			n.Status.Conditions = ready
			switch i {
			case 0, 1:
				c.DeletionTimestamp = &metav1.Time{Time: now}
			case 2:
				c.Annotations[coppice.AnnotationDisruption] = coppice.Disruption{ID: "x", Reason: empty, Claims: []string{c.Name}}.Encode()
			case 3:
				n.Status.Conditions = nil
			}
		})
	}
	nodes := s.state.Snapshot().Nodes
	r := rand.New(rand.NewPCG(9, 9))
	bound := 0
	for i := range 10_000 {
		var o sugar.Options
		for range 1 + r.IntN(3) {
			b := sugar.Budget{Nodes: []string{"0", "1", "4", "7", "10%", "50%"}[r.IntN(6)], TimeZone: []string{"", "America/New_York", "Europe/Berlin"}[r.IntN(3)]}
			if r.IntN(3) > 0 {
				b.Schedule, b.Duration = schedule(r), (time.Duration(1+r.IntN(24*60)) * time.Minute).String()
			}
			if r.IntN(2) == 0 {
				b.Reasons = []karpenter.DisruptionReason{reasons()[r.IntN(4)]}
			}
			o.Budgets = append(o.Budgets, b)
		}
		at := moment(r)
		d := &decider{in: Input{Now: at, Nodes: nodes, Pools: map[string]Pool{"a": {NodePool: s.pools[0], Options: o}}}, going: map[string]Command{}, machines: map[string]int{}}
		d.limits = map[string]map[karpenter.DisruptionReason]sugar.Limit{}
		for _, c := range underWay(nodes) {
			for _, name := range c.Claims {
				d.going[name] = c
			}
		}
		d.count()
		for _, reason := range reasons() {
			least := 1 << 40
			for _, b := range o.Budgets {
				active := true
				if b.Schedule != "" {
					windows, err := b.Windows(at, at.Add(time.Nanosecond))
					if err != nil {
						t.Fatal(err)
					}
					active = len(windows) > 0
				}
				if !active || len(b.Reasons) > 0 && b.Reasons[0] != reason {
					continue
				}
				n := map[string]int{"0": 0, "1": 1, "4": 4, "7": 7, "10%": 2, "50%": 10}[b.Nodes]
				least = min(least, n)
			}
			gone := 3 // two are deleted, a command takes one
			if reason != unhealthy {
				gone++ // one isn't ready
			}
			got := d.Allowed["a"][reason]
			if least < 1<<40 {
				bound++
				if want := max(0, least-gone); got != want {
					t.Fatalf("case %d at %v: %d may go for %s, want %d of %+v", i, at, got, reason, want, o.Budgets)
				}
			} else if got < 1<<40 {
				t.Fatalf("case %d at %v: %d may go for %s without a budget that says so: %+v", i, at, got, reason, o.Budgets)
			}
		}
	}
	if bound < 10_000 || bound > 39_000 {
		t.Errorf("only one side was tried: %d of 40,000 were bound", bound)
	}
}

// TestBudgetsAreNeverExceeded decides on random fleets at random times and counts.
func TestBudgetsAreNeverExceeded(t *testing.T) {
	begunWith := map[karpenter.DisruptionReason]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		at := moment(r)
		s := newScene()
		s.pools = nil
		for _, name := range []string{"a", "b"} {
			s.pool(name, func(p *karpenter.NodePool) {
				for range r.IntN(3) {
					b := karpenter.Budget{Nodes: []string{"0", "1", "2", "5", "10%", "50%", "100%"}[r.IntN(7)]}
					if r.IntN(2) == 0 {
						b.Reasons = []karpenter.DisruptionReason{reasons()[r.IntN(4)]}
					}
					if r.IntN(2) == 0 {
						text := schedule(r)
						b.Schedule, b.Duration = &text, &metav1.Duration{Duration: time.Duration(1+r.IntN(24*60)) * time.Minute}
					}
					p.Spec.Disruption.Budgets = append(p.Spec.Disruption.Budgets, b)
				}
			})
		}
		for i := range 2 + r.IntN(20) {
			name := fmt.Sprintf("n%02d", i)
			s.machine([]string{"a", "b"}[r.IntN(2)], name, []int64{2, 4, 8}[r.IntN(3)], func(c *karpenter.NodeClaim, n *corev1.Node) {
				switch r.IntN(8) {
				case 0:
					c.DeletionTimestamp = &metav1.Time{Time: now}
				case 1, 2:
					is(karpenter.ConditionDrifted, now.Add(-time.Minute))(c, n)
				case 3:
					n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
				case 4:
					c.Annotations[coppice.AnnotationDisruption] = coppice.Disruption{ID: name, Reason: empty, Claims: []string{c.Name}}.Encode()
				}
			})
			for j := range r.IntN(3) {
				s.run(name, fmt.Sprintf("%s-%d", name, j), 1)
			}
		}
		s.alter = func(in *Input) {
			in.Now, in.NodeRepair, in.Rollouts = at, true, map[string]Rollout{"a": {Wave: 100}, "b": {Wave: 1}}
		}
		d := s.decide(t)
		byClaim := map[string]cluster.Node{}
		total, down, dead := map[string]int{}, map[string]int{}, map[string]int{}
		for _, n := range s.state.Snapshot().Nodes {
			byClaim[n.Claim.Name] = n
			total[n.Pool()]++
			if _, going := commandOf(n); going || n.Deleting() {
				down[n.Pool()]++
			} else if !cluster.Ready(n.Node) {
				dead[n.Pool()]++
			}
		}
		started := map[string]int{}
		last := map[string]map[karpenter.DisruptionReason]bool{"a": {}, "b": {}}
		var claims []string
		for _, c := range d.Start {
			for _, name := range c.Claims {
				n := byClaim[name]
				if _, going := commandOf(n); going || n.Deleting() || slices.Contains(claims, name) {
					t.Fatalf("seed %d: %s is taken away twice", seed, name)
				}
				claims = append(claims, name)
				started[n.Pool()]++
				last[n.Pool()][c.Reason] = true
				begunWith[c.Reason]++
			}
		}
		for _, p := range s.pools {
			for reason := range last[p.Name] {
				limit, err := sugar.Allowed(sugar.BudgetsOf(p.Spec, NewPool(p).Options), reason, total[p.Name], at)
				if err != nil {
					t.Fatal(err)
				}
				used := down[p.Name]
				if reason != unhealthy {
					used += dead[p.Name]
				}
				// Nodes begun with for other reasons before count too, so the sum up to the
				// last for this reason is what matters; the reasons are in a fixed order.
				mine := 0
				for _, c := range d.Start {
					for _, name := range c.Claims {
						if byClaim[name].Pool() == p.Name && slices.Index(reasons(), c.Reason) <= slices.Index(reasons(), reason) {
							mine++
						}
					}
				}
				if limit.Nodes < 1<<40 && used+mine > limit.Nodes {
					t.Fatalf("seed %d: pool %s, %s: %d nodes are down and %d more are taken, of %d allowed", seed, p.Name, reason, used, mine, limit.Nodes)
				}
			}
		}
	}
	for _, r := range reasons() {
		if begunWith[r] == 0 {
			t.Errorf("no command for %s was tried", r)
		}
	}
}
