package disrupt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestGuardedPodsKeepTheirNodes decides on random fleets with PodDisruptionBudgets. No
// node may go voluntarily from which the API server would refuse to evict a pod now, or
// that a pod forbids to disrupt, and none
// may be said to be kept by its pods for no such reason.
func TestGuardedPodsKeepTheirNodes(t *testing.T) {
	begunWith, kept := map[karpenter.DisruptionReason]int{}, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 17))
		s := newScene(func(p *karpenter.NodePool) { p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "100%"}} })
		bounded := map[string]bool{}
		for i := range 2 + r.IntN(12) {
			node := fmt.Sprintf("n%02d", i)
			s.machine("a", node, []int64{2, 4, 8}[r.IntN(3)], func(c *karpenter.NodeClaim, n *corev1.Node) {
				if r.IntN(3) == 0 {
					is(karpenter.ConditionDrifted, now.Add(-time.Minute))(c, n)
				}
				if r.IntN(4) == 0 {
					c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
					bounded[c.Name] = true
				}
			})
			for j := range r.IntN(3) {
				s.run(node, fmt.Sprintf("%s-%d", node, j), 1, func(p *corev1.Pod) {
					p.Labels = map[string]string{"app": fmt.Sprint(r.IntN(4)), "tier": fmt.Sprint(r.IntN(2))}
					if r.IntN(10) == 0 {
						p.Annotations[karpenter.AnnotationDoNotDisrupt] = "true"
					}
				})
			}
		}
		for i := range r.IntN(4) {
			b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprint(i)}}
			match := map[string]string{"app": fmt.Sprint(r.IntN(4))}
			if r.IntN(4) == 0 {
				match = map[string]string{"tier": fmt.Sprint(r.IntN(2))}
			}
			b.Spec.Selector, b.Status.DisruptionsAllowed = &metav1.LabelSelector{MatchLabels: match}, int32(r.IntN(3))
			s.pdbs = append(s.pdbs, b)
		}
		s.alter = func(in *Input) { in.Rollouts = map[string]Rollout{"a": {Wave: 100}} }
		d := s.decide(t)
		nodes := byClaimName(s.state.Snapshot().Nodes)
		// refused is the API server's rule, told anew.
		refused := func(p *corev1.Pod) bool {
			n, none := 0, false
			for _, b := range s.pdbs {
				if labels.SelectorFromSet(b.Spec.Selector.MatchLabels).Matches(labels.Set(p.Labels)) {
					n++
					none = none || b.Status.DisruptionsAllowed == 0
				}
			}
			return n > 1 || none
		}
		for _, c := range d.Start {
			begunWith[c.Reason]++
			for _, name := range c.Claims {
				if c.Reason == drifted && bounded[name] {
					continue // its termination grace period outranks them
				}
				for _, p := range nodes[name].Pods {
					if refused(p) || p.Annotations[karpenter.AnnotationDoNotDisrupt] == "true" {
						t.Fatalf("seed %d: %s goes (%s) with pod %s on it", seed, name, c.Reason, p.Name)
					}
				}
			}
		}
		for _, v := range d.Verdicts {
			if v.Code != "PodDisruptionBudget" && v.Code != "PodDoNotDisrupt" {
				continue
			}
			kept++
			if !slices.ContainsFunc(nodes[v.Claim].Pods, func(p *corev1.Pod) bool {
				return refused(p) || p.Annotations[karpenter.AnnotationDoNotDisrupt] == "true"
			}) {
				t.Fatalf("seed %d: %s is said to be kept by its pods: %s", seed, v.Claim, v.Message)
			}
		}
	}
	if begunWith[drifted] == 0 || begunWith[underutilized] == 0 || kept == 0 {
		t.Errorf("not all was tried: %v began, %d were kept", begunWith, kept)
	}
}
