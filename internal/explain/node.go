package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func (a asker) node(s record.Subject) (*Answer, error) {
	n, err := find(a.Nodes, s)
	if err != nil {
		return nil, err
	}
	for i := range a.NodeClaims {
		if c := &a.NodeClaims[i]; n.Spec.ProviderID != "" && c.Status.ProviderID == n.Spec.ProviderID {
			return a.machine(c, n), nil
		}
	}
	return a.machine(nil, n), nil
}

func (a asker) nodeClaim(s record.Subject) (*Answer, error) {
	c, err := find(a.NodeClaims, s)
	if err != nil {
		return nil, err
	}
	for i := range a.Nodes {
		if n := &a.Nodes[i]; c.Status.ProviderID != "" && n.Spec.ProviderID == c.Status.ProviderID {
			return a.machine(c, n), nil
		}
	}
	return a.machine(c, nil), nil
}

// machine explains a claim and its Node, of which one may be missing.
func (a asker) machine(c *karpenter.NodeClaim, n *corev1.Node) *Answer {
	out := &Answer{}
	var about []record.Subject
	if n != nil {
		about = append(about, record.Subject{Kind: "Node", Name: n.Name})
	}
	if c != nil {
		about = append(about, record.Subject{Kind: "NodeClaim", Name: c.Name})
	}
	a.told(out, about...)

	var pods []*corev1.Pod
	if n != nil {
		for i := range a.Pods {
			if p := &a.Pods[i]; p.Spec.NodeName == n.Name && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				pods = append(pods, p)
			}
		}
	}
	out.Summary = a.stage(c, n)
	if c != nil {
		out.Holds = a.holds(c, n, pods)
	}
	fact := func(name, value string) {
		if value != "" {
			out.Facts = append(out.Facts, Fact{name, value})
		}
	}
	switch {
	case c == nil && ours(n):
		fact("NodeClaim", "gone; the Node is let go once its instance has ended")
		fact("NodePool", n.Labels[karpenter.LabelNodePool])
	case c == nil:
		fact("NodeClaim", "none: the node isn't Coppice's, and is never taken away")
	default:
		fact("NodeClaim", c.Name)
		fact("NodePool", c.Labels[karpenter.LabelNodePool])
		fact("Instance", strings.TrimSpace(strings.Join([]string{
			c.Labels[corev1.LabelInstanceTypeStable], c.Labels[karpenter.LabelCapacityType], c.Labels[corev1.LabelTopologyZone], c.Status.ProviderID}, " ")))
		if d := c.Spec.ExpireAfter; d.Duration != nil && *d.Duration > 0 {
			at := c.CreationTimestamp.Add(*d.Duration)
			fact("Expires", fmt.Sprintf("%s, in %s", at.UTC().Format("2006-01-02 15:04:05Z"), span(at.Sub(a.TakenAt))))
		}
	}
	if n != nil {
		fact("Node", n.Name)
		fact("Pods", a.podCount(pods))
	}
	if c != nil {
		out.Facts = append(out.Facts, conditions(c.Status.Conditions)...)
	}
	return out
}

// stage says in one line how far a machine is in its life.
func (a asker) stage(c *karpenter.NodeClaim, n *corev1.Node) string {
	switch {
	case c == nil && ours(n) && n.DeletionTimestamp != nil:
		return "on its way out for " + a.age(*n.DeletionTimestamp) + ", its NodeClaim gone before it"
	case c == nil && ours(n):
		return "left over: its NodeClaim is gone, " + a.age(n.CreationTimestamp) + " old"
	case c == nil:
		return "a node of somebody else, " + a.age(n.CreationTimestamp) + " old"
	case c.DeletionTimestamp != nil:
		text := "on its way out for " + a.age(*c.DeletionTimestamp)
		if at := c.Annotations[karpenter.AnnotationTerminationTimestamp]; at != "" {
			text += ", by force from " + at
		}
		return text
	}
	for _, step := range []struct{ condition, waits string }{
		{karpenter.ConditionLaunched, "waiting for its instance"},
		{karpenter.ConditionRegistered, "waiting for its Node to register"},
		{karpenter.ConditionInitialized, "waiting for its Node to be ready for pods"},
	} {
		if i := slices.IndexFunc(c.Status.Conditions, func(x metav1.Condition) bool { return x.Type == step.condition }); i < 0 ||
			c.Status.Conditions[i].Status != metav1.ConditionTrue {
			return step.waits + " for " + a.age(c.CreationTimestamp)
		}
	}
	return "in service, " + a.age(c.CreationTimestamp) + " old"
}

// ours reports whether a Node was taken over for a claim, whether or not that is still
// there.
func ours(n *corev1.Node) bool { return slices.Contains(n.Finalizers, karpenter.Finalizer) }

func (a asker) podCount(pods []*corev1.Pod) string {
	daemons := 0
	for _, p := range pods {
		if ofDaemonSet(p) {
			daemons++
		}
	}
	return fmt.Sprintf("%d, and %d of daemons", len(pods)-daemons, daemons)
}

func ofDaemonSet(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

// holds are what keeps a machine of ours from being taken away, whoever would want
// it.
func (a asker) holds(c *karpenter.NodeClaim, n *corev1.Node, pods []*corev1.Pod) []record.Reason {
	var out []record.Reason
	held := func(scope, message, remedy string) {
		out = append(out, record.Reason{Scope: scope, Code: "DoNotDisrupt", Message: message, Remedy: remedy})
	}
	if c.Annotations[karpenter.AnnotationDoNotDisrupt] == "true" {
		held("NodeClaim "+c.Name, "is annotated "+karpenter.AnnotationDoNotDisrupt, "remove the annotation")
	}
	if n != nil && n.Annotations[karpenter.AnnotationDoNotDisrupt] == "true" {
		held("Node "+n.Name, "is annotated "+karpenter.AnnotationDoNotDisrupt, "remove the annotation")
	}
	for _, p := range pods {
		name := "Pod " + p.Namespace + "/" + p.Name
		if p.DeletionTimestamp != nil {
			out = append(out, record.Reason{Scope: name, Code: "Terminating", Message: "is going, since " + a.age(*p.DeletionTimestamp)})
			continue
		}
		if v := p.Annotations[karpenter.AnnotationDoNotDisrupt]; v != "" && v != "false" {
			held(name, fmt.Sprintf("is annotated %s=%s", karpenter.AnnotationDoNotDisrupt, v), "remove the annotation, or a terminationGracePeriod of the NodePool")
		}
		if ofDaemonSet(p) {
			continue
		}
		for _, b := range a.Budgets {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if b.Namespace != p.Namespace || err != nil || !selector.Matches(labels.Set(p.Labels)) || b.Status.DisruptionsAllowed > 0 {
				continue
			}
			out = append(out, record.Reason{
				Scope: name, Code: "PodDisruptionBudget",
				Message: fmt.Sprintf("PodDisruptionBudget %s allows no eviction now: %d healthy, %d wanted", b.Name, b.Status.CurrentHealthy, b.Status.DesiredHealthy),
				Remedy:  "more healthy replicas, or a budget that allows one to go",
			})
		}
	}
	return out
}
