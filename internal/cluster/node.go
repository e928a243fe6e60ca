package cluster

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Node is a machine as the cluster sees it: the claim that asked for it, the Node
// that it became, and the pods bound to it. Claim is nil for machines of others,
// Node until the kubelet has registered. All of it is shared and read-only.
type Node struct {
	Claim *karpenter.NodeClaim
	Node  *corev1.Node
	// Pods are the bound pods that aren't terminal, sorted by namespace and name.
	Pods []*corev1.Pod
	// Moved is when a pod other than a daemon's last came or left, as far as this
	// process has seen; zero if it hasn't.
	Moved time.Time
	// NominatedUntil is until when pods are expected that aren't bound yet.
	NominatedUntil time.Time
}

// Name is the Node's name, or the claim's while there is no Node.
func (n Node) Name() string {
	if n.Node != nil {
		return n.Node.Name
	}
	return n.Claim.Name
}

// Pool is the name of the NodePool that the machine belongs to, or "".
func (n Node) Pool() string {
	if n.Claim != nil {
		return n.Claim.Labels[karpenter.LabelNodePool]
	}
	return ""
}

// Registered reports whether our controller has taken over the Node.
func (n Node) Registered() bool {
	return n.Node != nil && (n.Claim == nil || n.Node.Labels[karpenter.LabelRegistered] == "true")
}

// Initialized reports whether the machine is fully up. A machine of others counts
// as soon as it has a Node, since nobody will ever label it.
func (n Node) Initialized() bool {
	return n.Node != nil && (n.Claim == nil || n.Node.Labels[karpenter.LabelInitialized] == "true")
}

// Deleting reports whether the machine is on its way out.
func (n Node) Deleting() bool {
	return (n.Claim != nil && n.Claim.DeletionTimestamp != nil) ||
		(n.Node != nil && n.Node.DeletionTimestamp != nil)
}

// Labels are the Node's labels; until the Node is registered they are what the
// claim promises.
func (n Node) Labels() map[string]string {
	if n.Registered() {
		return n.Node.Labels
	}
	out := map[string]string{}
	if n.Node != nil {
		maps.Copy(out, n.Node.Labels)
	}
	maps.Copy(out, n.Claim.Labels)
	out[corev1.LabelHostname] = n.Name()
	return out
}

// Taints are those that a pod will meet once the machine is up. On a machine of
// ours that isn't initialized, startup taints and those that the platform removes
// by itself are left out, since they will be gone before pods are bound.
func (n Node) Taints() []corev1.Taint {
	if n.Claim == nil || n.Initialized() {
		return n.Node.Spec.Taints
	}
	have := n.Claim.Spec.Taints
	if n.Registered() {
		have = n.Node.Spec.Taints
	}
	var out []corev1.Taint
	for _, t := range have {
		if !Ephemeral(t) && !contains(n.Claim.Spec.StartupTaints, t) {
			out = append(out, t)
		}
	}
	return out
}

func contains(taints []corev1.Taint, t corev1.Taint) bool {
	for _, have := range taints {
		if have.MatchTaint(&t) {
			return true
		}
	}
	return false
}

// Allocatable is what pods may request in all. Until the machine is initialized,
// what the kubelet doesn't report yet (zero or absent) is taken from the claim.
func (n Node) Allocatable() corev1.ResourceList {
	return n.resources(
		func(n *corev1.Node) corev1.ResourceList { return n.Status.Allocatable },
		func(c *karpenter.NodeClaim) corev1.ResourceList { return c.Status.Allocatable })
}

// Capacity is the machine's size, which counts against the pool's limits.
func (n Node) Capacity() corev1.ResourceList {
	return n.resources(
		func(n *corev1.Node) corev1.ResourceList { return n.Status.Capacity },
		func(c *karpenter.NodeClaim) corev1.ResourceList { return c.Status.Capacity })
}

func (n Node) resources(
	ofNode func(*corev1.Node) corev1.ResourceList,
	ofClaim func(*karpenter.NodeClaim) corev1.ResourceList,
) corev1.ResourceList {
	if n.Claim == nil || n.Initialized() {
		return ofNode(n.Node)
	}
	out := ofClaim(n.Claim).DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	if n.Node != nil {
		for name, q := range ofNode(n.Node) {
			if !q.IsZero() {
				out[name] = q
			}
		}
	}
	return out
}
