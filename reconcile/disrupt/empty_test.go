package disrupt

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

var now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// machine returns an initialized node of pool "a", up for ten minutes, as altered.
func machine(name string, alter ...func(*cluster.Node)) cluster.Node {
	n := cluster.Node{
		Claim: &karpenter.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name, Labels: map[string]string{karpenter.LabelNodePool: "a"}},
			Status: karpenter.NodeClaimStatus{Conditions: []metav1.Condition{{
				Type: karpenter.ConditionInitialized, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Minute)),
			}}},
		},
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpenter.LabelInitialized: "true"}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
	}
	for _, f := range alter {
		f(&n)
	}
	return n
}

func pod(owner string, annotations map[string]string) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: annotations}, Spec: corev1.PodSpec{NodeName: "n"}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Controller: &yes}}
	}
	return p
}

func TestEmptyNodes(t *testing.T) {
	with := func(pods ...*corev1.Pod) func(*cluster.Node) {
		return func(n *cluster.Node) { n.Pods = pods }
	}
	tests := map[string]struct {
		why      string
		nodes    []cluster.Node
		after    karpenter.NillableDuration
		budgets  []karpenter.Budget
		want     []string
		wantNext time.Duration
	}{
		"empty for long":     {why: "30 s have passed", nodes: []cluster.Node{machine("n")}, want: []string{"n"}},
		"a workload runs":    {why: "it would have to move", nodes: []cluster.Node{machine("n", with(pod("ReplicaSet", nil)))}},
		"only a daemon runs": {why: "daemons go with their node", nodes: []cluster.Node{machine("n", with(pod("DaemonSet", nil)))}, want: []string{"n"}},
		"a daemon is protected": {why: "do-not-disrupt counts on any pod",
			nodes: []cluster.Node{machine("n", with(pod("DaemonSet", map[string]string{karpenter.AnnotationDoNotDisrupt: "true"})))}},
		"never": {why: "consolidateAfter: Never", nodes: []cluster.Node{machine("n")}, after: karpenter.NeverDuration()},
		"quiet for too short": {why: "a pod left 20 s ago, 30 s are asked", nodes: []cluster.Node{machine("n", func(n *cluster.Node) { n.Moved = now.Add(-20 * time.Second) })},
			wantNext: 10 * time.Second},
		"pods are expected": {why: "nominated", nodes: []cluster.Node{machine("n", func(n *cluster.Node) { n.NominatedUntil = now.Add(time.Second) })}},
		"not initialized":   {why: "it may still get its first pod", nodes: []cluster.Node{machine("n", func(n *cluster.Node) { delete(n.Node.Labels, karpenter.LabelInitialized) })}},
		"node protected": {why: "the annotation on the Node", nodes: []cluster.Node{machine("n", func(n *cluster.Node) {
			n.Node.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
		})}},
		"not ours": {why: "no claim", nodes: []cluster.Node{machine("n", func(n *cluster.Node) { n.Claim = nil })}},
		"budget": {why: "one of three, the first by name", nodes: []cluster.Node{machine("a"), machine("b"), machine("c")},
			budgets: []karpenter.Budget{{Nodes: "1"}}, want: []string{"a"}, wantNext: budgetPoll},
		"one is going already": {why: "it uses the budget up", nodes: []cluster.Node{
			machine("a", func(n *cluster.Node) { n.Claim.DeletionTimestamp = &metav1.Time{Time: now} }), machine("b"),
		}, budgets: []karpenter.Budget{{Nodes: "1"}}, wantNext: budgetPoll},
		"one is down": {why: "a node that isn't ready uses it up too", nodes: []cluster.Node{
			machine("a", func(n *cluster.Node) { n.Node.Status.Conditions[0].Status = corev1.ConditionUnknown }, with(pod("ReplicaSet", nil))), machine("b"),
		}, budgets: []karpenter.Budget{{Nodes: "1"}}, wantNext: budgetPoll},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			pool.Spec.Disruption.ConsolidateAfter = karpenter.After(30 * time.Second)
			if !tc.after.IsZero() {
				pool.Spec.Disruption.ConsolidateAfter = tc.after
			}
			pool.Spec.Disruption.Budgets = tc.budgets
			gone, next, errs := emptyNodes(cluster.Snapshot{Nodes: tc.nodes}, map[string]*karpenter.NodePool{"a": pool}, now)
			var got []string
			for _, n := range gone {
				got = append(got, n.Name())
			}
			if len(errs) > 0 || !slices.Equal(got, tc.want) || next != tc.wantNext {
				t.Errorf("emptyNodes() = %v, %v, %v; want %v, %v (%s)", got, next, errs, tc.want, tc.wantNext, tc.why)
			}
		})
	}
}

func TestUnreadableBudgetKeepsEveryNode(t *testing.T) {
	cron := "not a schedule"
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	pool.Spec.Disruption.ConsolidateAfter = karpenter.After(0)
	pool.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "100%", Schedule: &cron, Duration: &metav1.Duration{Duration: time.Hour}}}
	gone, _, errs := emptyNodes(cluster.Snapshot{Nodes: []cluster.Node{machine("n")}}, map[string]*karpenter.NodePool{"a": pool}, now)
	if len(gone) != 0 || errs["a"] == nil {
		t.Errorf("emptyNodes() = %d nodes, %v; want none and an error", len(gone), errs)
	}
}

func TestPoolDrift(t *testing.T) {
	pool := func(alter ...func(*karpenter.NodePool)) *karpenter.NodePool {
		p := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		p.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
		p.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m5.large", "m5.xlarge"}},
		}
		for _, f := range alter {
			f(p)
		}
		return p
	}
	claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{corev1.LabelInstanceTypeStable: "m5.large"},
		Annotations: map[string]string{
			karpenter.AnnotationNodePoolHash: pool().Hash(), karpenter.AnnotationNodePoolHashVersion: karpenter.NodePoolHashVersion,
		},
	}}
	otherVersion := claim.DeepCopy()
	otherVersion.Annotations[karpenter.AnnotationNodePoolHashVersion] = "v3"
	label := func(p *karpenter.NodePool) { p.Spec.Template.Labels = map[string]string{"team": "a"} }
	tests := map[string]struct {
		why   string
		claim *karpenter.NodeClaim
		pool  *karpenter.NodePool
		want  string
	}{
		"unchanged": {"the pool that it came from", claim, pool(), ""},
		"template":  {"a new label is on no old node", claim, pool(label), nodePoolDrifted},
		"other algorithm": {"hashes of another controller can't be compared",
			otherVersion, pool(label), ""},
		"limits": {"limits are no part of a node", claim, pool(func(p *karpenter.NodePool) { p.Spec.Weight = new(int32) }), ""},
		"types": {"m5.large isn't allowed any more", claim, pool(func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements[0].Values = []string{"m5.xlarge"}
		}), requirementsDrifted},
		"wider": {"still allowed", claim, pool(func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements[0].Values = []string{"m5.large", "c5.large"}
		}), ""},
		"new label asked": {"the node doesn't have it", claim, pool(func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, karpenter.NodeSelectorRequirementWithMinValues{Key: "team", Operator: corev1.NodeSelectorOpExists})
		}), requirementsDrifted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := poolDrift(tc.claim, tc.pool); got != tc.want {
				t.Errorf("poolDrift() = %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}
