package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestMoving follows a claim that is deleted while its pod has yet to get another place.
func TestMoving(t *testing.T) {
	s := NewState(clocktesting.NewFakePassiveClock(now))
	m := NewModel()
	claim := func(name, provider string, going bool) {
		c := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: karpenter.NodeClaimStatus{ProviderID: provider}}
		if going {
			c.DeletionTimestamp = &metav1.Time{Time: now}
		}
		s.SetClaim(c)
	}
	plan := func(places map[string]string) {
		t.Helper()
		if err := m.Sync(s, nil); err != nil {
			t.Fatal(err)
		}
		s.SetPlan(m, places)
	}
	is := func(why, target string, known bool) {
		t.Helper()
		if got, ok := s.Moving("old"); got != target || ok != known {
			t.Errorf("pods move to %q, %v; want %q, %v: %s", got, ok, target, known, why)
		}
	}
	claim("old", "aws:///z/i-1", false)
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-old"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-1"}})
	s.SetPod(pod("p", on("node-old")))
	plan(nil)
	claim("old", "aws:///z/i-1", true)
	is("the plan was made before it began to go", "", false)
	if err := m.Sync(s, nil); err != nil {
		t.Fatal(err)
	}
	claim("new", "", false)
	s.SetPlan(m, map[string]string{"d/p": "new"})
	is("its pod goes to a claim that isn't launched", "new", true)
	claim("new", "aws:///z/i-2", false)
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-new"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-2"}})
	plan(map[string]string{"d/p": "node-new"})
	is("its Node has joined and isn't ready", "node-new", true)
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-new", Labels: map[string]string{karpenter.LabelInitialized: "true"}}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-2"}})
	is("its Node is ready for pods", "", true)
	claim("new", "aws:///z/i-2", true)
	is("it isn't waited for a node that goes itself", "", true)
	plan(nil)
	is("no node can be had", "", true)
}

// TestPodsThatStayWantNoNode: a pod that can't leave its node, which is to go, has no use
// for another until it can.
func TestPodsThatStayWantNoNode(t *testing.T) {
	zero, part, all := intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromString("100%")
	allow := policyv1.AlwaysAllow
	protected := func(p *corev1.Pod) { p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"} }
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	tests := map[string]struct {
		why     string
		pod     *corev1.Pod
		budget  policyv1.PodDisruptionBudgetSpec
		pending int
	}{
		"free":          {"its node goes, so it wants another", pod("p", on("n"), ready), policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &part}, 1},
		"protected":     {"it forbids its disruption", pod("p", on("n"), protected), policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &part}, 0},
		"none may go":   {"however healthy the others are", pod("p", on("n"), ready), policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero}, 0},
		"all must stay": {"the same in other words", pod("p", on("n"), ready), policyv1.PodDisruptionBudgetSpec{MinAvailable: &all}, 0},
		"sick":          {"the budget lets sick pods go", pod("p", on("n")), policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &zero, UnhealthyPodEvictionPolicy: &allow}, 1},
		"sick set":      {"its successor has its name and waits for it", pod("p", on("n"), going, protected, owned("apps/v1", "StatefulSet")), policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &part}, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s, m := NewState(clocktesting.NewFakePassiveClock(now)), NewModel()
			tc.budget.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "b", Generation: 1}, Spec: tc.budget}
			s.Set(b)
			s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", DeletionTimestamp: &metav1.Time{Time: now}}, Status: karpenter.NodeClaimStatus{ProviderID: "aws:///z/i-1"}})
			s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-1"}})
			s.SetPod(tc.pod)
			pending := func() int {
				t.Helper()
				if err := m.Sync(s, nil); err != nil {
					t.Fatal(err)
				}
				return m.Pending()
			}
			if got := pending(); got != tc.pending {
				t.Errorf("%d pods want a node, want %d: %s", got, tc.pending, tc.why)
			}
			open := b.DeepCopy()
			open.Generation, open.Spec.MaxUnavailable, open.Spec.MinAvailable = 2, &part, nil
			s.Set(open)
			if want := 1; name != "protected" && pending() != want {
				t.Errorf("%d pods want a node after the budget was opened, want %d", pending(), want)
			}
			s.Set(b)
			s.Delete(b)
			if name != "protected" && pending() != 1 {
				t.Errorf("%d pods want a node after the budget was deleted, want 1", pending())
			}
		})
	}
}
