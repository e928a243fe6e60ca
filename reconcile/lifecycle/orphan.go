package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// orphans returns the Nodes that were taken over for a claim which is gone, as when
// somebody has removed its finalizer. Nobody else would remove theirs. Another
// provider's have the same finalizer and not the label.
func orphans(nodes []corev1.Node, claims []karpenter.NodeClaim) []*corev1.Node {
	claimed := map[string]bool{}
	for i := range claims {
		claimed[claims[i].Status.ProviderID] = true
		claimed[string(claims[i].UID)] = true
	}
	var out []*corev1.Node
	for i := range nodes {
		n := &nodes[i]
		if !controllerutil.ContainsFinalizer(n, karpenter.Finalizer) || n.Labels[aws.LabelNodeClass] == "" || claimed[n.Spec.ProviderID] {
			continue
		}
		if !slices.ContainsFunc(n.OwnerReferences, func(o metav1.OwnerReference) bool { return claimed[string(o.UID)] }) {
			out = append(out, n)
		}
	}
	return out
}

// release lets orphaned Nodes go once their instances have ended, and reports whether
// some are still to come. The cloud's list may lag; a kubelet that answers doesn't.
func (c *collector) release(ctx context.Context, nodes []*corev1.Node, instances []cloud.Instance) (more bool, err error) {
	var errs []error
	for _, n := range nodes {
		if cluster.Ready(n) || slices.ContainsFunc(instances, func(i cloud.Instance) bool { return i.ProviderID == n.Spec.ProviderID }) {
			more = true
			continue
		}
		switch err := letGo(ctx, c.kube, n); {
		case apierrors.IsConflict(err):
			more = true // the cache is late; the next round sees what it is now
		case err != nil:
			errs = append(errs, fmt.Errorf("let go Node %s, whose NodeClaim and instance are gone: %w", n.Name, err))
		default:
			ctrl.LoggerFrom(ctx).Info("let go a Node whose NodeClaim and instance are gone", "Node", n.Name)
		}
	}
	return more, errors.Join(errs...)
}

// letGo removes our finalizer from the Node and deletes it.
func letGo(ctx context.Context, kube client.Client, node *corev1.Node) error {
	want := node.DeepCopy()
	if controllerutil.RemoveFinalizer(want, karpenter.Finalizer) {
		patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
		if err := kube.Patch(ctx, want, patch); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if err := kube.Delete(ctx, node, client.Preconditions{UID: &node.UID}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	return nil
}
