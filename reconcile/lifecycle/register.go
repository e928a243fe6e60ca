package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// register takes over the Node that the claim's instance has become, and returns it as
// it is then. It sets Registered, and status.nodeName.
func (r *Reconciler) register(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node) (*corev1.Node, error) {
	if isTrue(claim, karpenter.ConditionRegistered) {
		return node, nil
	}
	if node == nil {
		set(claim, karpenter.ConditionRegistered, metav1.ConditionUnknown, "NodeNotFound", "Node not registered with cluster")
		return nil, nil
	}
	if !cluster.HasTaint(node, karpenter.UnregisteredTaint()) && node.Labels[karpenter.LabelRegistered] != "true" {
		r.events.Eventf(claim, node, corev1.EventTypeWarning, "UnregisteredTaintMissing", "Register",
			"Node %s joined without the taint %s, so pods may have been bound before it was ready; add it to the kubelet's registerWithTaints",
			node.Name, karpenter.TaintUnregistered)
	}
	r.expect(ctx, claim, node)
	want := registration(claim, node)
	if !equality.Semantic.DeepEqual(node, want) {
		patch, err := takeover(node, want)
		if err != nil {
			return nil, err
		}
		if err := r.kube.Patch(ctx, want, patch); overtaken(err) {
			return nil, apierrors.NewConflict(corev1.Resource("nodes"), node.Name, err)
		} else if err != nil {
			return nil, fmt.Errorf("register Node %s: %w", node.Name, err)
		}
	}
	claim.Status.NodeName = node.Name
	setTrue(claim, karpenter.ConditionRegistered)
	return want, nil
}

// expect has the pods nominated that the Node was opened for. It is called before the Node
// is open to any, and once more when it is ready: the scheduler drops a nomination when it
// tries the pod in between. That it fails is no reason to keep the Node from pods.
func (r *Reconciler) expect(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node) {
	if err := r.settle(ctx, claim.Name, node.Name); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "nominate the pods that were planned onto it", "Node", node.Name)
	}
}

// registration returns the Node as it should be once taken over: the claim's
// labels, annotations and taints, our finalizer, the claim as owner, and no
// unregistered taint. Nothing that others put on the Node is removed. A Node that has come
// far enough is said to be initialized with the same stroke.
func registration(claim *karpenter.NodeClaim, node *corev1.Node) *corev1.Node {
	n := node.DeepCopy()
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	maps.Copy(n.Labels, claim.Labels)
	maps.Copy(n.Annotations, claim.Annotations)
	n.Labels[karpenter.LabelRegistered] = "true"
	controllerutil.AddFinalizer(n, karpenter.Finalizer)
	n.OwnerReferences = ownedByClaim(n.OwnerReferences, claim)

	// A kubelet that was told its taints has them from its first moment; putting
	// them back would undo the removal of a startup taint by whoever owns it.
	if n.Labels[karpenter.LabelDoNotSyncTaints] != "true" {
		for _, t := range slices.Concat(claim.Spec.Taints, claim.Spec.StartupTaints) {
			if !cluster.HasTaint(n, t) {
				n.Spec.Taints = append(n.Spec.Taints, t)
			}
		}
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpenter.TaintUnregistered })
	if reason, _ := missing(claim, n); reason == "" {
		n.Labels[karpenter.LabelInitialized] = "true"
	}
	return n
}

func ownedByClaim(refs []metav1.OwnerReference, claim *karpenter.NodeClaim) []metav1.OwnerReference {
	if slices.ContainsFunc(refs, func(o metav1.OwnerReference) bool { return o.UID == claim.UID }) {
		return refs
	}
	block := true
	return append(refs, metav1.OwnerReference{
		APIVersion: karpenter.GroupVersion.String(), Kind: "NodeClaim",
		Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: &block,
	})
}

// initialize sets Initialized once nothing stands between the Node and its pods.
func (r *Reconciler) initialize(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node) error {
	if isTrue(claim, karpenter.ConditionInitialized) || node == nil || !isTrue(claim, karpenter.ConditionRegistered) {
		if !isTrue(claim, karpenter.ConditionInitialized) {
			set(claim, karpenter.ConditionInitialized, metav1.ConditionUnknown, "AwaitingRegistration", "Node not registered with cluster")
		}
		return nil
	}
	if reason, message := missing(claim, node); reason != "" {
		if reason == ephemeralTaints && r.clock.Since(readySince(node)) < taintGrace {
			return nil // hardly worth a write for each of many nodes that come at once
		}
		set(claim, karpenter.ConditionInitialized, metav1.ConditionUnknown, reason, message)
		return nil
	}
	r.expect(ctx, claim, node)
	if node.Labels[karpenter.LabelInitialized] != "true" {
		want := node.DeepCopy()
		if want.Labels == nil {
			want.Labels = map[string]string{}
		}
		want.Labels[karpenter.LabelInitialized] = "true"
		if err := r.kube.Patch(ctx, want, client.MergeFrom(node)); err != nil {
			return fmt.Errorf("label Node %s initialized: %w", node.Name, err)
		}
	}
	setTrue(claim, karpenter.ConditionInitialized)
	return nil
}

// ephemeralTaints is the reason of a Node that others have tainted for its first moments.
const ephemeralTaints = "KnownEphemeralTaintsExist"

// taintGrace is how long a Node that is ready may have such a taint before its claim says
// so: the node controller takes its own away as soon as it has seen that the kubelet is
// ready.
const taintGrace = 10 * time.Second

// readySince is when the Node became ready, the zero time if it isn't.
func readySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// missing says what keeps the Node from being initialized, or "" for nothing.
func missing(claim *karpenter.NodeClaim, node *corev1.Node) (reason, message string) {
	if !cluster.Ready(node) {
		return "NodeNotReady", "Node status is NotReady"
	}
	for _, t := range claim.Spec.StartupTaints {
		if cluster.HasTaint(node, t) {
			return "StartupTaintsExist", fmt.Sprintf("StartupTaint %q still exists", t.ToString())
		}
	}
	for _, t := range node.Spec.Taints {
		if cluster.Ephemeral(t) {
			return ephemeralTaints, fmt.Sprintf("Taint %q still exists", t.ToString())
		}
	}
	var absent []string
	for name, want := range claim.Spec.Resources.Requests {
		got := node.Status.Allocatable[name]
		if !want.IsZero() && got.IsZero() {
			absent = append(absent, string(name))
		}
	}
	if len(absent) > 0 {
		slices.Sort(absent)
		return "ResourceNotRegistered", "Resources not registered: " + strings.Join(absent, ", ")
	}
	return "", ""
}

// leastFound is how many per cent of what its type promises a Node must have: Karpenter's
// value. The memory that a hypervisor keeps is already left out of the promise.
const leastFound = 90

// compare sets ConsistentStateFound: whether the Node turned out to be as large as the
// claim was told.
func (r *Reconciler) compare(claim *karpenter.NodeClaim, node *corev1.Node) {
	if node == nil || !isTrue(claim, karpenter.ConditionInitialized) {
		return
	}
	why := small(claim, node)
	if why == "" {
		setTrue(claim, karpenter.ConditionConsistentStateFound)
		return
	}
	if had := apimeta.FindStatusCondition(claim.Status.Conditions, karpenter.ConditionConsistentStateFound); had == nil || had.Message != why {
		r.events.Eventf(claim, node, corev1.EventTypeWarning, "FailedConsistencyCheck", "Compare", "Node %s: %s", node.Name, why)
	}
	set(claim, karpenter.ConditionConsistentStateFound, metav1.ConditionFalse, "ConsistencyCheckFailed", why)
}

// small says of what the Node has much less than it should, of the resources that the
// claim asked for, "" for none.
func small(claim *karpenter.NodeClaim, node *corev1.Node) string {
	var out []string
	for name, asked := range claim.Spec.Resources.Requests {
		want, got := claim.Status.Capacity[name], node.Status.Capacity[name]
		if asked.IsZero() || want.IsZero() {
			continue
		}
		if got.AsApproximateFloat64()*100 < want.AsApproximateFloat64()*leastFound {
			out = append(out, fmt.Sprintf("%s is %s, of %s that were promised", name, got.String(), want.String()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
