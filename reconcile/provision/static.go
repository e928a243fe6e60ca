package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// staticRecheck is how often a static pool is looked at when nothing happens: its
// limit may have been what stood in the way, and other controllers mark its nodes.
const staticRecheck = time.Minute

// static keeps each pool with replicas at its number of nodes.
type static struct {
	kube   client.Client
	state  *cluster.State
	synced func() bool
	events events.EventRecorder
	clock  clock.Clock
	health *health.Tracker

	metrics *metrics.Set
}

func setupStatic(mgr ctrl.Manager, state *cluster.State, synced func() bool, clk clock.Clock, o Options) error {
	r := &static{
		kube: mgr.GetClient(), state: state, synced: synced, events: mgr.GetEventRecorder("coppice"),
		clock: clk, health: o.Health, metrics: o.Metrics,
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool-static").
		For(&karpenter.NodePool{}).
		Watches(&karpenter.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(ofClaim)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// Reconcile creates the claims that a static pool lacks, or deletes those that it
// has too many of. What exists is read from the state, which knows of the claims
// created here before the watch does: a second pass creates nothing twice.
func (r *static) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pool karpenter.NodePool
	if err := r.kube.Get(ctx, req.NamespacedName, &pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.IsStatic() || pool.DeletionTimestamp != nil || pool.Spec.Template.Spec.NodeClassRef.Group != aws.Group {
		return ctrl.Result{}, nil
	}
	if !r.synced() {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	now := r.clock.Now()
	step := nextStatic(&pool, r.state.Snapshot(), now)
	var errs []error
	for _, n := range step.Remove {
		r.events.Eventf(n.Claim, nil, corev1.EventTypeNormal, "ScaledDown", "Delete", "NodePool %s has more nodes than its %d replicas", pool.Name, *pool.Spec.Replicas)
		if err := r.kube.Delete(ctx, n.Claim, client.Preconditions{UID: &n.Claim.UID}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete NodeClaim %s: %w", n.Claim.Name, err))
		}
	}
	if step.Limited > 0 {
		r.events.Eventf(&pool, nil, corev1.EventTypeWarning, "LimitReached", "Scale", "%d of %d replicas are missing: the pool's limit for nodes is reached", step.Limited, *pool.Spec.Replicas)
	}
	if step.Create == 0 {
		return ctrl.Result{RequeueAfter: staticRecheck}, errors.Join(errs...)
	}
	if !apimeta.IsStatusConditionTrue(pool.Status.Conditions, karpenter.ConditionReady) {
		return ctrl.Result{RequeueAfter: staticRecheck}, errors.Join(errs...) // its becoming ready is an event
	}
	hold := holdOf(r.health, r.state, pool.Name)
	if hold.Closed(now) {
		return ctrl.Result{RequeueAfter: max(time.Second, hold.Until.Sub(now))}, errors.Join(errs...)
	}
	if hold.Failures > 0 {
		step.Create = 1
	}
	var class aws.EC2NodeClass
	if err := r.kube.Get(ctx, types.NamespacedName{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, &class); err != nil {
		return ctrl.Result{}, fmt.Errorf("NodePool %s: %w", pool.Name, err)
	}
	for range step.Create {
		claim := NewClaim(&pool, &class, TemplateNode(&pool))
		if err := r.kube.Create(ctx, claim); err != nil {
			errs = append(errs, fmt.Errorf("create NodeClaim for NodePool %s: %w", pool.Name, err))
			break
		}
		r.metrics.NodeClaimsCreated.WithLabelValues("provisioned", pool.Name, "false").Inc()
		r.state.SetClaim(claim.DeepCopy())
		if hold.Failures > 0 {
			r.health.Probe(pool.Name, claim.Name)
		}
	}
	return ctrl.Result{RequeueAfter: staticRecheck}, errors.Join(errs...)
}

// TemplateNode is a node that is as the pool's template says, for no pod in
// particular. Requirements that leave a label one value give it to the node.
func TemplateNode(pool *karpenter.NodePool) *pack.NewNode {
	n := &pack.NewNode{Pool: pool.Name, Requirements: cluster.Requirements(pool.Spec.Template.Spec.Requirements), Labels: map[string]string{}}
	for _, r := range n.Requirements {
		if r.Operator == pack.In && len(r.Values) == 1 && !cluster.WellKnown(r.Key) {
			n.Labels[r.Key] = r.Values[0]
		}
	}
	return n
}

// staticStep is what a static pool needs now.
type staticStep struct {
	Create int
	Remove []cluster.Node
	// Limited counts the replicas that the limit for nodes forbids.
	Limited int
}

// nextStatic compares a static pool with its nodes. Nodes on their way out count
// for the limit, since they still cost, and not for the replicas. Nodes that are
// about to be replaced count for the replicas only while there are too few, so that
// the replacement may come first.
//
// Of too many, those go first whose loss matters least: not launched yet, then with
// the fewest pods to move, those with pods that forbid it last; among equals the
// youngest, which have run the least.
func nextStatic(pool *karpenter.NodePool, s cluster.Snapshot, now time.Time) staticStep {
	var step staticStep
	var running []cluster.Node
	total, marked := 0, 0
	for _, n := range s.Nodes {
		if n.Claim == nil || n.Pool() != pool.Name {
			continue
		}
		total++
		switch {
		case n.Deleting():
		case apimeta.IsStatusConditionTrue(n.Claim.Status.Conditions, karpenter.ConditionDisruptionReason):
			marked++
		default:
			running = append(running, n)
		}
	}
	want := int(*pool.Spec.Replicas)
	if missing := want - len(running) - marked; missing > 0 {
		step.Create = missing
		if limit, ok := pool.Spec.Limits["nodes"]; ok {
			step.Create = min(missing, max(0, int(limit.Value())-total))
			step.Limited = missing - step.Create
		}
	}
	excess := len(running) - want
	if excess <= 0 {
		return step
	}
	slices.SortStableFunc(running, func(a, b cluster.Node) int {
		x, y := lossOf(a, now), lossOf(b, now)
		return cmp.Or(slices.Compare(x[:], y[:]),
			b.Claim.CreationTimestamp.Compare(a.Claim.CreationTimestamp.Time),
			strings.Compare(a.Claim.Name, b.Claim.Name))
	})
	step.Remove = running[:excess]
	return step
}

// lossOf ranks a node by what its removal costs: protected pods, being launched,
// pods to move.
func lossOf(n cluster.Node, now time.Time) [3]int {
	var loss [3]int
	if n.Claim.Status.ProviderID != "" {
		loss[1] = 1
	}
	for _, p := range n.Pods {
		if cluster.DoNotDisrupt(p, now) {
			loss[0] = 1
		}
		if cluster.Reschedulable(p) {
			loss[2]++
		}
	}
	return loss
}
