package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Cloud is what a claim's life asks of a cloud.
type Cloud interface {
	InstanceTypes(ctx context.Context, class *aws.EC2NodeClass) ([]cloud.InstanceType, error)
	Launch(ctx context.Context, req cloud.LaunchRequest) (cloud.Instance, error)
	Instances(ctx context.Context) ([]cloud.Instance, error)
	Terminate(ctx context.Context, id string) error
	Tag(ctx context.Context, id string, tags map[string]string) error
}

// Field indexes of the manager's cache.
const (
	indexProviderID   = "providerID"
	indexPodNode      = "spec.nodeName"
	indexAttachedNode = "spec.attachedNode"
	indexFleet        = "fleet"
)

// workers is how many claims are worked on at once. A launch holds one for as long
// as the cloud's call takes (1 to 3 s for CreateFleet), so this bounds launches
// under way rather than CPU.
const workers = 100

// conflictPause is how soon to try again after somebody else's write was in the way. The
// watch delivers it, and that asks for the claim again; this is for a watch that is slow.
// To try sooner would meet the same conflict, as often as the watch is behind.
const conflictPause = time.Second

// Options are what a claim's life depends on beside the cloud.
type Options struct {
	Timeouts Timeouts
	// State knows where the pods of a node that goes are planned to go, and when the
	// last came or left.
	State *cluster.State
	// Settle tells the scheduler which pods a Node was opened for, by its claim's name and
	// its own, before it is open to any.
	Settle func(ctx context.Context, claim, node string) error
	// Health is told how claims fare.
	Health *health.Tracker
	// Metrics count what happens.
	Metrics *metrics.Set
}

// retryFirst and retryMost bound the pauses between attempts at a step that fails,
// as when the cloud throttles or an API server is away. Pods wait for a launch, so
// the longest is short; EC2's bucket for CreateFleet refills within it.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 20 * time.Second
)

// Reconciler walks NodeClaims through their life.
type Reconciler struct {
	kube     client.Client
	cloud    Cloud
	events   events.EventRecorder
	clock    clock.Clock
	timeouts Timeouts
	state    *cluster.State
	settle   func(ctx context.Context, claim, node string) error
	health   *health.Tracker
	metrics  *metrics.Set

	// launched remembers what a claim's launch returned, a cloud.Instance by claim UID:
	// the watch may be slow to deliver the status that says so.
	launched sync.Map
	// fleets are launches for several claims.
	fleets fleets
	// written has claims as the last write here returned them, by name, until the watch
	// has caught up. Who reads only what it has delivered writes over what is older than
	// his own last word, and is refused.
	written sync.Map
}

// tell records which steps a reconcile has brought the claim over, once they are
// written.
func (r *Reconciler) tell(before, after *karpenter.NodeClaim) {
	pool := after.Labels[karpenter.LabelNodePool]
	for _, x := range []struct {
		condition string
		stage     health.Stage
	}{{karpenter.ConditionLaunched, health.Launched}, {karpenter.ConditionRegistered, health.Registered}, {karpenter.ConditionInitialized, health.Initialized}} {
		if !isTrue(after, x.condition) || isTrue(before, x.condition) {
			continue
		}
		if pool != "" {
			r.health.Reached(pool, after.Name, x.stage)
		}
		r.metrics.NodeClaimStep.WithLabelValues(x.condition, pool).Observe(r.clock.Since(after.CreationTimestamp.Time).Seconds())
		if x.stage == health.Registered {
			r.metrics.NodesCreated.WithLabelValues(pool, after.Labels[corev1.LabelTopologyZone]).Inc()
		}
	}
	if isTrue(after, karpenter.ConditionDrained) && !isTrue(before, karpenter.ConditionDrained) {
		r.metrics.NodesDrained.WithLabelValues(pool).Inc()
	}
	if !controllerutil.ContainsFinalizer(after, karpenter.Finalizer) && controllerutil.ContainsFinalizer(before, karpenter.Finalizer) {
		r.ended(after, pool)
	}
}

// ended records that a claim is gone with all that it had.
func (r *Reconciler) ended(claim *karpenter.NodeClaim, pool string) {
	if pool != "" {
		r.health.Gone(pool, claim.Name)
	}
	zone, took := claim.Labels[corev1.LabelTopologyZone], r.clock.Since(claim.DeletionTimestamp.Time).Seconds()
	r.metrics.NodeClaimsTerminated.WithLabelValues(pool, claim.Labels[karpenter.LabelCapacityType], zone).Inc()
	r.metrics.NodeClaimTermination.WithLabelValues(pool).Observe(took)
	now := r.clock.Now()
	if isTrue(claim, karpenter.ConditionInstanceTerminating) {
		r.metrics.InstanceTermination.WithLabelValues(pool).Observe(now.Sub(since(claim, karpenter.ConditionInstanceTerminating, now)).Seconds())
	}
	if isTrue(claim, karpenter.ConditionRegistered) {
		r.metrics.NodesTerminated.WithLabelValues(pool, zone).Inc()
		r.metrics.NodeTermination.WithLabelValues(pool).Observe(took)
		r.metrics.NodeLifetime.WithLabelValues(pool).Observe(now.Sub(since(claim, karpenter.ConditionRegistered, now)).Seconds())
	}
}

// Setup adds the NodeClaim controller and the collector of lost instances to mgr.
func Setup(mgr ctrl.Manager, c Cloud, clk clock.Clock, o Options) error {
	r := &Reconciler{
		kube:     mgr.GetClient(),
		cloud:    c,
		events:   mgr.GetEventRecorder("coppice"),
		clock:    clk,
		timeouts: o.Timeouts,
		state:    o.State,
		settle:   o.Settle,
		health:   o.Health,
		metrics:  o.Metrics,
	}
	ctx := context.Background()
	for _, x := range []struct {
		object client.Object
		field  string
		value  func(client.Object) string
	}{
		{&corev1.Node{}, indexProviderID, func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
		{&karpenter.NodeClaim{}, indexProviderID, func(o client.Object) string { return o.(*karpenter.NodeClaim).Status.ProviderID }},
		{&karpenter.NodeClaim{}, indexFleet, func(o client.Object) string { return fleetToken(o.(*karpenter.NodeClaim)) }},
		{&corev1.Pod{}, indexPodNode, func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		{&storagev1.VolumeAttachment{}, indexAttachedNode, func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }},
	} {
		index := func(o client.Object) []string {
			if v := x.value(o); v != "" {
				return []string{v}
			}
			return nil
		}
		if err := mgr.GetFieldIndexer().IndexField(ctx, x.object, x.field, index); err != nil {
			return fmt.Errorf("index %T by %s: %w", x.object, x.field, err)
		}
	}
	if err := mgr.Add(&collector{kube: mgr.GetClient(), live: mgr.GetAPIReader(), cloud: c, clock: clk, metrics: o.Metrics}); err != nil {
		return fmt.Errorf("add instance collector: %w", err)
	}
	if err := mgr.Add(&tagger{kube: mgr.GetClient(), cloud: c, clock: clk}); err != nil {
		return fmt.Errorf("add tagger of instances: %w", err)
	}
	if err := mgr.Add(&quieter{kube: mgr.GetClient(), state: o.State, clock: clk}); err != nil {
		return fmt.Errorf("add observer of quiet nodes: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeclaim").
		For(&karpenter.NodeClaim{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.claimOfNode)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost),
		}).
		Complete(r)
}

func (r *Reconciler) claimOfNode(ctx context.Context, o client.Object) []reconcile.Request {
	id := o.(*corev1.Node).Spec.ProviderID
	if id == "" {
		return nil
	}
	var claims karpenter.NodeClaimList
	if err := r.kube.List(ctx, &claims, client.MatchingFields{indexProviderID: id}); err != nil {
		return nil // the cache is stopping
	}
	var out []reconcile.Request
	for _, c := range claims.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: c.Name}})
	}
	return out
}

// Reconcile takes the step that is due for one claim.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var claim karpenter.NodeClaim
	if err := r.kube.Get(ctx, req.NamespacedName, &claim); err != nil {
		r.written.Delete(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.catchUp(&claim)
	if claim.Spec.NodeClassRef.Group != aws.Group {
		return ctrl.Result{}, nil // another provider's
	}
	node, err := r.nodeOf(ctx, &claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := claim.DeepCopy()
	var after time.Duration
	if claim.DeletionTimestamp != nil {
		after, err = r.finalize(ctx, &claim, node)
	} else {
		after, err = r.raise(ctx, &claim, node)
	}
	switch werr := r.write(ctx, before, &claim); {
	case apierrors.IsNotFound(werr):
		// The claim ended before, and was told of then: the watch is late to say so.
		return ctrl.Result{}, err
	case apierrors.IsConflict(werr):
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	case werr != nil:
		return ctrl.Result{}, errors.Join(err, werr)
	}
	r.tell(before, &claim)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return ctrl.Result{RequeueAfter: after}, err
}

// catchUp replaces a claim as the watch has delivered it by the one that the last write
// here has made of it, if that is newer.
func (r *Reconciler) catchUp(claim *karpenter.NodeClaim) {
	got, ok := r.written.Load(claim.Name)
	if !ok {
		return
	}
	if last := got.(*karpenter.NodeClaim); last.UID == claim.UID && cluster.Newer(last.ResourceVersion, claim.ResourceVersion) {
		last.DeepCopyInto(claim)
		return
	}
	r.written.Delete(claim.Name)
}

// raise takes a living claim one step towards a ready Node and says when to look
// again, 0 meaning when something changes.
func (r *Reconciler) raise(ctx context.Context, claim *karpenter.NodeClaim, node *corev1.Node) (time.Duration, error) {
	now := r.clock.Now()
	if node != nil && node.DeletionTimestamp != nil {
		return 0, r.remove(ctx, claim, "the Node was deleted")
	}
	if at, expires := expiry(claim); expires && !now.Before(at) {
		r.events.Eventf(claim, nil, corev1.EventTypeNormal, "Expired", "Delete", "NodeClaim reached expireAfter %s", claim.Spec.ExpireAfter.String())
		r.metrics.NodeClaimsDisrupted.WithLabelValues("expired", claim.Labels[karpenter.LabelNodePool]).Inc()
		return 0, r.remove(ctx, claim, "expired")
	}
	if step, _ := r.timeouts.overdue(claim, now); step != "" {
		return 0, r.timeOut(ctx, claim, step)
	}
	if !isTrue(claim, karpenter.ConditionLaunched) {
		if wait, err := r.launch(ctx, claim); err != nil || wait > 0 {
			return wait, err
		}
	}
	if !isTrue(claim, karpenter.ConditionLaunched) {
		return 0, nil // given up: the deletion comes as an event of its own
	}
	node, err := r.register(ctx, claim, node)
	if err != nil {
		return 0, err
	}
	if err := r.initialize(ctx, claim, node); err != nil {
		return 0, err
	}
	r.compare(claim, node)
	setReady(claim)
	next := r.nextLook(claim, now)
	if node != nil && !isTrue(claim, karpenter.ConditionInitialized) {
		if left := taintGrace - now.Sub(readySince(node)); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next, nil
}

// nextLook says when the claim's next deadline is, 0 for none.
func (r *Reconciler) nextLook(claim *karpenter.NodeClaim, now time.Time) time.Duration {
	_, next := r.timeouts.overdue(claim, now)
	if at, expires := expiry(claim); expires && (next == 0 || at.Sub(now) < next) {
		next = at.Sub(now)
	}
	return next
}

// remove deletes the claim; its finalizer turns that into an orderly end.
func (r *Reconciler) remove(ctx context.Context, claim *karpenter.NodeClaim, why string) error {
	err := r.kube.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete NodeClaim %s (%s): %w", claim.Name, why, err)
	}
	return nil
}

func (r *Reconciler) nodeOf(ctx context.Context, claim *karpenter.NodeClaim) (*corev1.Node, error) {
	if claim.Status.ProviderID == "" {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := r.kube.List(ctx, &nodes, client.MatchingFields{indexProviderID: claim.Status.ProviderID}); err != nil {
		return nil, fmt.Errorf("find Node of NodeClaim %s: %w", claim.Name, err)
	}
	switch len(nodes.Items) {
	case 0:
		return nil, nil
	case 1:
		return &nodes.Items[0], nil
	}
	return nil, fmt.Errorf("NodeClaim %s: %d Nodes carry providerID %s", claim.Name, len(nodes.Items), claim.Status.ProviderID)
}

// write stores what a reconcile changed: metadata first, so that labels are there
// when a condition says that the claim is launched, then the status. Nothing
// changed means nothing written. The list of conditions is replaced as a whole, so
// the status is written only over the one that was read: a conflict otherwise. It is
// not found if the claim was gone before anything was written.
func (r *Reconciler) write(ctx context.Context, before, after *karpenter.NodeClaim) error {
	base := before
	stamp(before.Status.Conditions, after.Status.Conditions, r.clock.Now())
	if !equality.Semantic.DeepEqual(before.ObjectMeta, after.ObjectMeta) {
		obj := before.DeepCopy()
		after.ObjectMeta.DeepCopyInto(&obj.ObjectMeta)
		// Finalizers and owners are lists that a patch replaces as a whole.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.kube.Patch(ctx, obj, patch); err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(obj.Status, before.Status) {
			return apierrors.NewConflict(karpenter.GroupVersion.WithResource("nodeclaims").GroupResource(), before.Name, errStale)
		}
		base = obj
		r.written.Store(obj.Name, obj)
	}
	if !equality.Semantic.DeepEqual(before.Status, after.Status) {
		obj := base.DeepCopy()
		after.Status.DeepCopyInto(&obj.Status)
		patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
		if err := r.kube.Status().Patch(ctx, obj, patch); err != nil {
			if base != before {
				return client.IgnoreNotFound(err) // it went with its finalizer
			}
			return err
		}
		r.written.Store(obj.Name, obj)
	}
	return nil
}

var errStale = errors.New("the status was written by somebody else meanwhile")
