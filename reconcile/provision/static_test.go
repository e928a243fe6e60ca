package provision

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

var now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// member returns a launched machine of pool "fixed", an hour old, as altered.
func member(name string, alter ...func(*cluster.Node)) cluster.Node {
	n := cluster.Node{Claim: &karpenter.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpenter.LabelNodePool: "fixed"}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Status:     karpenter.NodeClaimStatus{ProviderID: "aws:///a/" + name},
	}}
	for _, f := range alter {
		f(&n)
	}
	return n
}

func TestNextStatic(t *testing.T) {
	yes := true
	pods := func(n int, annotations map[string]string) func(*cluster.Node) {
		return func(m *cluster.Node) {
			for range n {
				m.Pods = append(m.Pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations,
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: &yes}}}})
			}
		}
	}
	going := func(m *cluster.Node) { m.Claim.DeletionTimestamp = &metav1.Time{Time: now} }
	marked := func(m *cluster.Node) {
		m.Claim.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionDisruptionReason, Status: metav1.ConditionTrue}}
	}
	unlaunched := func(m *cluster.Node) { m.Claim.Status.ProviderID = "" }
	young := func(m *cluster.Node) { m.Claim.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }
	protected := map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
	tests := map[string]struct {
		why      string
		replicas int64
		limit    string
		nodes    []cluster.Node
		create   int
		limited  int
		remove   string
	}{
		"from nothing":      {why: "three are missing", replicas: 3, create: 3},
		"as it should be":   {why: "nothing to do", replicas: 1, nodes: []cluster.Node{member("a")}},
		"one is going":      {why: "its successor comes at once", replicas: 1, nodes: []cluster.Node{member("a", going)}, create: 1},
		"the limit":         {why: "of three missing one is allowed", replicas: 4, limit: "2", nodes: []cluster.Node{member("a")}, create: 1, limited: 2},
		"the limit is full": {why: "a node on its way out still costs", replicas: 2, limit: "2", nodes: []cluster.Node{member("a"), member("b", going)}, limited: 1},
		"about to go":       {why: "whoever marked it brings the replacement", replicas: 2, nodes: []cluster.Node{member("a"), member("b", marked)}},
		"replacement there": {why: "three of two, one of them marked: nobody else has to go", replicas: 2, nodes: []cluster.Node{member("a"), member("b", marked), member("c")}},
		"fewest pods go":    {why: "b has one pod to move, a has two", replicas: 1, nodes: []cluster.Node{member("a", pods(2, nil)), member("b", pods(1, nil))}, remove: "b"},
		"unlaunched goes":   {why: "nobody has paid for it yet", replicas: 1, nodes: []cluster.Node{member("a"), member("b", unlaunched)}, remove: "b"},
		"protected stays":   {why: "a pod on a forbids it", replicas: 1, nodes: []cluster.Node{member("a", pods(1, protected)), member("b", pods(9, nil))}, remove: "b"},
		"the youngest goes": {why: "equal in all else", replicas: 1, nodes: []cluster.Node{member("a"), member("b", young)}, remove: "b"},
		"to zero":           {why: "even protected ones: replicas say so", replicas: 0, nodes: []cluster.Node{member("a", pods(1, protected)), member("b")}, remove: "b a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}}
			pool.Spec.Replicas = &tc.replicas
			if tc.limit != "" {
				pool.Spec.Limits = karpenter.Limits{"nodes": resource.MustParse(tc.limit)}
			}
			got := nextStatic(pool, tc.nodes, now)
			var removed []string
			for _, n := range got.Remove {
				removed = append(removed, n.Claim.Name)
			}
			if got.Create != tc.create || got.Limited != tc.limited || strings.Join(removed, " ") != tc.remove {
				t.Errorf("nextStatic() = create %d, limited %d, remove %q; want %d, %d, %q (%s)",
					got.Create, got.Limited, removed, tc.create, tc.limited, tc.remove, tc.why)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	list := func(text string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for _, part := range strings.Fields(text) {
			name, q, _ := strings.Cut(part, "=")
			out[corev1.ResourceName(name)] = resource.MustParse(q)
		}
		return out
	}
	tests := map[string]struct {
		why                string
		limits, used, size string
		n, want            int
	}{
		"no limit":       {"on what the nodes have", "example.com/fpga=1", "cpu=100 nodes=9", "cpu=4 nodes=1", 3, 3},
		"room for all":   {"exactly", "cpu=20", "cpu=8", "cpu=4 nodes=1", 3, 3},
		"room for two":   {"a third would pass it by one", "cpu=19", "cpu=8", "cpu=4 nodes=1", 3, 2},
		"the least room": {"of nodes there is one left", "cpu=100 nodes=3", "cpu=8 nodes=2", "cpu=4 nodes=1", 3, 1},
		"passed already": {"it was lowered", "nodes=1", "nodes=2", "nodes=1", 3, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := within(list(tc.limits), list(tc.used), list(tc.size), tc.n); got != tc.want {
				t.Errorf("within() = %d, want %d (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestRollout(t *testing.T) {
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "fixed", Generation: 4}}
	pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m5.large"}},
	}
	current := func(m *cluster.Node) {
		m.Claim.Annotations = map[string]string{karpenter.AnnotationNodePoolHash: pool.Hash(), karpenter.AnnotationNodePoolHashVersion: karpenter.NodePoolHashVersion}
		m.Claim.Labels[corev1.LabelInstanceTypeStable] = "m5.large"
	}
	oldHash := func(m *cluster.Node) { m.Claim.Annotations[karpenter.AnnotationNodePoolHash] = "1" }
	foreign := func(m *cluster.Node) {
		m.Claim.Annotations[karpenter.AnnotationNodePoolHash], m.Claim.Annotations[karpenter.AnnotationNodePoolHashVersion] = "1", "v3"
	}
	oldType := func(m *cluster.Node) { m.Claim.Labels[corev1.LabelInstanceTypeStable] = "c5.large" }
	flagged := func(m *cluster.Node) {
		m.Claim.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: "AMIDrift"}}
	}
	going := func(m *cluster.Node) { m.Claim.DeletionTimestamp = &metav1.Time{Time: now} }
	tests := map[string]struct {
		why    string
		nodes  []cluster.Node
		status metav1.ConditionStatus
		text   string
	}{
		"no nodes":        {"nothing to roll out to", nil, metav1.ConditionFalse, "0 NodeClaims are as declared"},
		"all current":     {"", []cluster.Node{member("a", current), member("b", current)}, metav1.ConditionFalse, "2 NodeClaims are as declared"},
		"template":        {"nobody has to have marked it as drifted yet", []cluster.Node{member("a", current, oldHash), member("b", current)}, metav1.ConditionTrue, "1 of 2 NodeClaims are not as declared"},
		"requirements":    {"the type isn't allowed any more", []cluster.Node{member("a", current, oldType)}, metav1.ConditionTrue, "1 of 1 NodeClaims are not as declared"},
		"the cloud":       {"an old image, which only the cloud knows", []cluster.Node{member("a", current, flagged)}, metav1.ConditionTrue, "1 of 1 NodeClaims are not as declared"},
		"on its way out":  {"the rollout is over when it is gone", []cluster.Node{member("a", current, oldHash, going)}, metav1.ConditionTrue, "1 of 1 NodeClaims are not as declared"},
		"another's hash":  {"Karpenter's claims after a migration are left alone", []cluster.Node{member("a", current, foreign)}, metav1.ConditionFalse, "1 NodeClaims are as declared"},
		"not yet started": {"its labels come with the launch", []cluster.Node{member("a", current, oldType, func(m *cluster.Node) { m.Claim.Status.ProviderID = "" })}, metav1.ConditionFalse, "1 NodeClaims are as declared"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := pool.DeepCopy()
			rollout(p, nil, tc.nodes, sugar.Options{})
			c := p.Status.Conditions[0]
			if c.Status != tc.status || c.Message != tc.text || c.ObservedGeneration != 4 {
				t.Errorf("condition %s %q of generation %d; want %s %q (%s)", c.Status, c.Message, c.ObservedGeneration, tc.status, tc.text, tc.why)
			}
		})
	}
}
