package disrupt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// poll is the longest time between two looks at the cluster. A look costs one pass
// over the nodes in memory and no call.
const poll = 2 * time.Second

// loop looks for nodes to take away. It runs on the leader alone.
type loop struct {
	kube   client.Client
	live   client.Reader // past the cache
	state  *cluster.State
	synced func() bool
	events events.EventRecorder
	clock  clock.Clock
}

// NeedLeaderElection keeps a standby from disrupting.
func (l *loop) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (l *loop) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("disrupt")
	for {
		wait := poll
		if l.synced() {
			next, err := l.pass(ctx)
			if err != nil && ctx.Err() == nil {
				log.Error(err, "take away empty nodes")
			}
			if next > 0 && next < wait {
				wait = next
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.clock.After(wait):
		}
	}
}

func (l *loop) pass(ctx context.Context) (time.Duration, error) {
	var list karpenter.NodePoolList
	if err := l.kube.List(ctx, &list); err != nil {
		return 0, fmt.Errorf("list NodePools: %w", err)
	}
	pools := map[string]*karpenter.NodePool{}
	for i := range list.Items {
		pools[list.Items[i].Name] = &list.Items[i]
	}
	gone, next, refused := emptyNodes(l.state.Snapshot(), pools, l.clock.Now())
	var errs []error
	for name, err := range refused {
		l.events.Eventf(pools[name], nil, corev1.EventTypeWarning, "DisruptionBlocked", "Disrupt", "%v; no node is taken away until it is mended", err)
	}
	for _, n := range gone {
		errs = append(errs, l.remove(ctx, n))
	}
	return next, errors.Join(errs...)
}

// remove taints an empty node and, if it is still empty then, deletes its claim.
func (l *loop) remove(ctx context.Context, n cluster.Node) error {
	tainted, err := l.taint(ctx, n.Node)
	if err != nil {
		return err
	}
	var pods corev1.PodList
	err = l.live.List(ctx, &pods, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Node.Name)})
	if err != nil {
		return errors.Join(fmt.Errorf("list pods of Node %s: %w", n.Node.Name, err), l.untaint(ctx, tainted))
	}
	for i := range pods.Items {
		if cluster.Reschedulable(&pods.Items[i]) {
			l.events.Eventf(n.Claim, n.Node, corev1.EventTypeNormal, "DisruptionBlocked", "Disrupt",
				"Pod %s/%s was bound to Node %s at the last moment", pods.Items[i].Namespace, pods.Items[i].Name, n.Node.Name)
			return l.untaint(ctx, tainted)
		}
	}
	l.events.Eventf(n.Claim, n.Node, corev1.EventTypeNormal, "DisruptionTerminating", "Disrupt", "Disrupting NodeClaim: Empty")
	if err := l.kube.Delete(ctx, n.Claim, client.Preconditions{UID: &n.Claim.UID}); err != nil && !apierrors.IsNotFound(err) {
		return errors.Join(fmt.Errorf("delete NodeClaim %s: %w", n.Claim.Name, err), l.untaint(ctx, tainted))
	}
	return nil
}

func (l *loop) taint(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	t := karpenter.DisruptedTaint()
	if slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
		return node, nil
	}
	want := node.DeepCopy()
	want.Spec.Taints = append(want.Spec.Taints, t)
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := l.kube.Patch(ctx, want, patch); err != nil {
		return nil, fmt.Errorf("taint Node %s: %w", node.Name, err)
	}
	return want, nil
}

func (l *loop) untaint(ctx context.Context, node *corev1.Node) error {
	want := node.DeepCopy()
	t := karpenter.DisruptedTaint()
	want.Spec.Taints = slices.DeleteFunc(want.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) })
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := l.kube.Patch(ctx, want, patch); err != nil {
		return fmt.Errorf("untaint Node %s: %w", node.Name, err)
	}
	return nil
}
