package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// staticRecheck is how often a static pool is looked at when nothing happens: its
// limit may have been what stood in the way, and other controllers mark its nodes.
const staticRecheck = time.Minute

// staticPeriod is how long the changes of a static pool's claims are gathered before it
// is looked at: a replacement is no later by it than by a tenth of a second.
const staticPeriod = 100 * time.Millisecond

// static keeps each pool with replicas at its number of nodes.
type static struct {
	kube   client.Client
	state  *cluster.State
	synced func() bool
	events events.EventRecorder
	clock  clock.Clock
	health *health.Tracker
	cloud  Cloud
	// limits bound what the nodes of all pools may add up to.
	limits corev1.ResourceList
	book   *record.Book
	// growing is held from the look at what the limits leave until that is used, so that
	// two pools don't use it both.
	growing sync.Mutex
	metrics *metrics.Set
}

func setupStatic(mgr ctrl.Manager, state *cluster.State, synced func() bool, c Cloud, clk clock.Clock, o Options) error {
	r := &static{
		kube: mgr.GetClient(), state: state, synced: synced, events: mgr.GetEventRecorder("coppice"),
		clock: clk, health: o.Health, cloud: c, limits: o.Limits, book: o.Book, metrics: o.Metrics,
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool-static").
		For(&karpenter.NodePool{}).
		Watches(&karpenter.NodeClaim{}, gathered(staticPeriod)).
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
	step := nextStatic(&pool, r.state.Of(pool.Name), now)
	var errs []error
	if n := len(step.Remove); n > 0 {
		r.note(&pool, now, "ScaledDown", fmt.Sprintf("it has %d nodes more than its %d replicas", n, *pool.Spec.Replicas), "")
	}
	for _, n := range step.Remove {
		r.events.Eventf(n.Claim, nil, corev1.EventTypeNormal, "ScaledDown", "Delete", "NodePool %s has more nodes than its %d replicas", pool.Name, *pool.Spec.Replicas)
		if err := r.kube.Delete(ctx, n.Claim, client.Preconditions{UID: &n.Claim.UID}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete NodeClaim %s: %w", n.Claim.Name, err))
		}
	}
	if step.Limited > 0 {
		r.events.Eventf(&pool, nil, corev1.EventTypeWarning, "LimitReached", "Scale", "%d of %d replicas are missing: the pool's limit for nodes is reached", step.Limited, *pool.Spec.Replicas)
		r.note(&pool, now, "LimitReached", fmt.Sprintf("%d of %d replicas are missing: the pool's limit for nodes is reached", step.Limited, *pool.Spec.Replicas), "a higher limit for nodes, or fewer replicas")
	}
	if step.Create == 0 {
		return ctrl.Result{RequeueAfter: staticRecheck}, errors.Join(errs...)
	}
	if !apimeta.IsStatusConditionTrue(pool.Status.Conditions, karpenter.ConditionReady) {
		return ctrl.Result{RequeueAfter: staticRecheck}, errors.Join(errs...) // its becoming ready is an event
	}
	hold := holdOf(r.health, r.state, &pool, now)
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
	if len(r.limits) > 0 {
		r.growing.Lock()
		defer r.growing.Unlock()
	}
	allowed, err := r.allowed(ctx, &pool, &class, step.Create)
	if err != nil {
		return ctrl.Result{}, errors.Join(append(errs, err)...)
	}
	if allowed < step.Create {
		r.events.Eventf(&pool, nil, corev1.EventTypeWarning, "LimitReached", "Scale", "%d of %d replicas are missing: the limit over all NodePools is reached", step.Create-allowed, *pool.Spec.Replicas)
		r.note(&pool, now, "ClusterLimitReached", fmt.Sprintf("%d of %d replicas are missing: the limit over all NodePools is reached", step.Create-allowed, *pool.Spec.Replicas), "higher --cluster-limits, or fewer nodes of other NodePools")
	} else if step.Limited == 0 {
		r.note(&pool, now, "ScaledUp", fmt.Sprintf("%d of %d replicas are missing, and opened", allowed, *pool.Spec.Replicas), "")
	}
	marks, _ := join(slices.Repeat([]pack.NewNode{*TemplateNode(&pool)}, allowed), fleetToken)
	errs = append(errs, kube.Each(allowed, func(i int) error {
		claim := NewClaim(&pool, &class, TemplateNode(&pool))
		if marks[i] != "" {
			claim.Annotations[coppice.AnnotationFleet] = marks[i]
		}
		if err := r.kube.Create(ctx, claim); err != nil {
			return fmt.Errorf("create NodeClaim for NodePool %s: %w", pool.Name, err)
		}
		r.metrics.NodeClaimsCreated.WithLabelValues("provisioned", pool.Name, "false").Inc()
		r.state.Expect(claim.DeepCopy())
		if hold.Failures > 0 {
			r.health.Probe(pool.Name, claim.Name)
		}
		return nil
	})...)
	return ctrl.Result{RequeueAfter: staticRecheck}, errors.Join(errs...)
}

// note enters into the decision record what was decided about the pool's number of nodes,
// and what would change it if that is known.
func (r *static) note(pool *karpenter.NodePool, now time.Time, verdict, message, remedy string) {
	d := record.Decision{Topic: "Replicas", Verdict: verdict, Message: message}
	if remedy != "" {
		d.Reasons = []record.Reason{{Scope: "NodePool " + pool.Name, Code: verdict, Message: message, Remedy: remedy}}
	}
	r.book.Put(record.Subject{Kind: "NodePool", Name: pool.Name}, now, d)
}

// allowed says how many of n more nodes of the pool the limit over all pools lets in. A
// node that isn't launched counts as the largest that its pool could launch, since
// nobody knows which it will be; one of another pool as what it was asked for.
func (r *static) allowed(ctx context.Context, pool *karpenter.NodePool, class *aws.EC2NodeClass, n int) (int, error) {
	if len(r.limits) == 0 || n == 0 {
		return n, nil
	}
	types, err := r.cloud.InstanceTypes(ctx, class)
	if err != nil {
		return 0, fmt.Errorf("NodePool %s: list instance types: %w", pool.Name, err)
	}
	size := corev1.ResourceList{}
	for _, t := range cloud.Acceptable(types, NewClaim(pool, class, TemplateNode(pool)).Spec.Requirements) {
		for name, q := range t.Capacity {
			if have := size[name]; q.Cmp(have) > 0 {
				size[name] = q
			}
		}
	}
	size["nodes"] = resource.MustParse("1")
	used := corev1.ResourceList{}
	for _, m := range r.state.Snapshot().Nodes {
		if m.Pool() == "" {
			continue
		}
		has := m.Capacity().DeepCopy()
		if len(has) == 0 && m.Pool() == pool.Name {
			has = size.DeepCopy()
		} else if len(has) == 0 {
			has = m.Claim.Spec.Resources.Requests.DeepCopy()
		}
		if has == nil {
			has = corev1.ResourceList{}
		}
		has["nodes"] = resource.MustParse("1")
		for name, q := range has {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	return within(r.limits, used, size, n), nil
}

// within returns how many of n nodes of a size the limits leave room for.
func within(limits, used, size corev1.ResourceList, n int) int {
	for name, limit := range limits {
		left, each := limit.DeepCopy(), size[name]
		left.Sub(used[name])
		for ; n > 0; n-- {
			want := each.DeepCopy()
			want.Mul(int64(n))
			if want.Cmp(left) <= 0 {
				break
			}
		}
	}
	return n
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

// nextStatic compares a static pool with its machines. Nodes on their way out count
// for the limit, since they still cost, and not for the replicas. Nodes that are
// about to be replaced count for the replicas only while there are too few, so that
// the replacement may come first.
//
// Of too many, those go first whose loss matters least: not launched yet, then with
// the fewest pods to move, those with pods that forbid it last; among equals the
// youngest, which have run the least.
func nextStatic(pool *karpenter.NodePool, nodes []cluster.Node, now time.Time) staticStep {
	var step staticStep
	var running []cluster.Node
	marked := 0
	for _, n := range nodes {
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
			step.Create = min(missing, max(0, int(limit.Value())-len(nodes)))
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

// StaticStep says what a static pool, with these machines, needs now to have its number
// of them: how many more, or which have to go. It is what the controller acts on.
func StaticStep(pool *karpenter.NodePool, nodes []cluster.Node, now time.Time) (create int, remove []cluster.Node) {
	step := nextStatic(pool, nodes, now)
	return step.Create, step.Remove
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
