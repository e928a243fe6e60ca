package lifecycle

import (
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
