package lifecycle

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestComing(t *testing.T) {
	deleted := func(ago time.Duration) func(*karpenter.NodeClaim) {
		return func(c *karpenter.NodeClaim) {
			c.DeletionTimestamp, c.Status.ProviderID = &metav1.Time{Time: now.Add(-ago)}, "aws:///z/i-1"
		}
	}
	spot := func(c *karpenter.NodeClaim) {
		c.Labels = map[string]string{karpenter.LabelCapacityType: karpenter.CapacityTypeSpot}
	}
	disrupted := func(c *karpenter.NodeClaim) { setTrue(c, karpenter.ConditionDisruptionReason) }
	reserved := func(c *karpenter.NodeClaim) {
		c.Labels = map[string]string{karpenter.LabelCapacityType: karpenter.CapacityTypeReserved}
	}
	early := func(c *karpenter.NodeClaim) {
		c.Annotations = map[string]string{coppice.AnnotationDisruption: coppice.Disruption{ID: "x", Claims: []string{c.Name}, Replacements: []string{"new"}}.Encode()}
	}
	const going, planning = "pods go to new, which is on its way", "it is being planned where the pods go"
	tests := map[string]struct {
		why    string
		claim  *karpenter.NodeClaim
		plan   map[string]string // nil for none
		within time.Duration     // of a deadline, 0 for none
		want   string
	}{
		"not planned":      {why: "the plan takes a moment", claim: claim(deleted(time.Second)), want: planning},
		"never planned":    {why: "the planner has other troubles", claim: claim(deleted(5 * time.Second)), want: ""},
		"on its way":       {why: "evicted now the pod had no place", claim: claim(deleted(time.Minute)), plan: map[string]string{"d/p": "new"}, want: going},
		"too slow":         {why: "it was waited for long enough", claim: claim(deleted(3 * time.Minute)), plan: map[string]string{"d/p": "new"}},
		"no place":         {why: "no node can be had: the deletion is what was asked for", claim: claim(deleted(time.Second)), plan: map[string]string{}},
		"spot":             {why: "two minutes' notice may be all there is", claim: claim(deleted(time.Minute), spot), plan: map[string]string{"d/p": "new"}},
		"by a command":     {why: "disruption brought the replacement first", claim: claim(deleted(time.Second), disrupted), plan: map[string]string{"d/p": "new"}},
		"reserved":         {why: "its owner may have taken the reservation back", claim: claim(deleted(time.Minute), reserved), plan: map[string]string{"d/p": "new"}},
		"before a command": {why: "its replacement is on its way", claim: claim(deleted(time.Second), disrupted, early), plan: map[string]string{"d/p": "new"}, want: going},
		"half a deadline":  {why: "the other half is for an orderly eviction", claim: claim(deleted(10 * time.Second)), plan: map[string]string{"d/p": "new"}, within: 9 * time.Second},
		"early enough":     {why: "not half of the grace period is over", claim: claim(deleted(10 * time.Second)), plan: map[string]string{"d/p": "new"}, within: 15 * time.Second, want: going},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, m := cluster.NewState(clocktesting.NewFakePassiveClock(now)), cluster.NewModel()
			s.SetClaim(tc.claim)
			s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "new"}})
			s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-1"}})
			s.SetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}})
			if tc.plan != nil {
				if err := m.Sync(s, nil); err != nil {
					t.Fatal(err)
				}
				s.SetPlan(m, tc.plan)
			}
			r := &Reconciler{state: s}
			if got := r.coming(tc.claim, now.Add(tc.within), tc.within > 0, now); got != tc.want {
				t.Errorf("coming() = %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestSmall(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	c := claim(func(c *karpenter.NodeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		c.Status.Capacity = list("4", "16Gi")
	})
	for capacity, want := range map[[2]string]string{
		{"4", "16Gi"}:    "",
		{"4", "14.5Gi"}:  "",
		{"2", "16Gi"}:    "", // nobody asked for cpu
		{"4", "14000Mi"}: "memory is 14000Mi, of 16Gi that were promised",
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Capacity: list(capacity[0], capacity[1])}}
		if got := small(c, n); got != want {
			t.Errorf("small(%v) = %q, want %q", capacity, got, want)
		}
	}
}

// TestInTurn empties two nodes at once: one with small pods, one with a large and a
// critical one.
func TestInTurn(t *testing.T) {
	pod := func(node, name string, cpu string, alter ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}}}
		for _, f := range alter {
			f(&p)
		}
		return p
	}
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	stays := func(p *corev1.Pod) { p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"} }
	critical := func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }
	for name, tc := range map[string]struct {
		why       string
		ago       time.Duration // since our deletion
		by        karpenter.DisruptionReason
		other     []corev1.Pod
		replaced  bool // the other waits for a replacement
		staying   bool // the other's deletion hasn't come yet
		evict     int  // of three pods
		waitsThen bool
	}{
		"alone":             {"the largest of its own first", 0, "Underutilized", nil, false, false, 1, true},
		"a larger one":      {"it finds room before the small ones take it", 0, "Underutilized", []corev1.Pod{pod("m", "big", "4")}, false, false, 0, true},
		"about to be":       {"the same search takes it away", 0, "Underutilized", []corev1.Pod{pod("m", "big", "4")}, false, true, 0, true},
		"waits for another": {"its pods leave in a minute or so", 0, "Underutilized", []corev1.Pod{pod("m", "big", "4")}, true, true, 1, true},
		"larger, but going": {"its successor is on its way to the scheduler", 0, "Underutilized", []corev1.Pod{pod("m", "big", "4", ending)}, false, false, 1, true},
		"larger, but stays": {"nobody knows until when", 0, "Underutilized", []corev1.Pod{pod("m", "big", "4", stays)}, false, false, 1, true},
		"larger, critical":  {"it leaves when all others have", 0, "Underutilized", []corev1.Pod{pod("m", "big", "4", critical)}, false, false, 1, true},
		"long enough":       {"a budget may keep the large one for hours", turns, "Underutilized", []corev1.Pod{pod("m", "big", "4")}, false, false, 3, false},
		"by hand":           {"somebody wants it gone", 0, "", []corev1.Pod{pod("m", "big", "4")}, false, false, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := cluster.NewState(clocktesting.NewFakePassiveClock(now))
			machine := func(name string, deleted bool, d coppice.Disruption) *karpenter.NodeClaim {
				c := claim(func(c *karpenter.NodeClaim) {
					c.Name, c.Status.ProviderID = name, "aws:///z/"+name
					if deleted {
						c.DeletionTimestamp = &metav1.Time{Time: now.Add(-tc.ago)}
					}
					if tc.by != "" {
						setTrue(c, karpenter.ConditionDisruptionReason)
						c.Annotations = map[string]string{coppice.AnnotationDisruption: d.Encode()}
					}
				})
				s.SetClaim(c)
				s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/" + name}})
				return c
			}
			ours := machine("n", true, coppice.Disruption{ID: "a", Reason: tc.by, Claims: []string{"n"}, Since: now})
			theirs := coppice.Disruption{ID: "b", Reason: tc.by, Claims: []string{"m"}, Since: now}
			if tc.replaced {
				theirs.Replacements = []string{"new"}
			}
			machine("m", !tc.staying, theirs)
			pods := []corev1.Pod{pod("n", "p1", "100m"), pod("n", "p2", "1"), pod("n", "p3", "250m")}
			for _, p := range slices.Concat(pods, tc.other) {
				s.SetPod(&p)
			}
			r := &Reconciler{state: s}
			got, waits := r.inTurn(ours, pods, now)
			if len(got) != tc.evict || waits != tc.waitsThen {
				t.Errorf("inTurn() = %d pods, %v; want %d, %v: %s", len(got), waits, tc.evict, tc.waitsThen, tc.why)
			}
		})
	}
}
