package provision

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// pools keeps each NodePool's status: whether nodes may be opened from it, and
// what its nodes add up to.
type pools struct {
	kube   client.Client
	state  *cluster.State
	health *health.Tracker
	clock  clock.PassiveClock
	cloud  Cloud
	events events.EventRecorder
	book   *record.Book
}

func setupPools(mgr ctrl.Manager, state *cluster.State, c Cloud, clk clock.PassiveClock, o Options) error {
	r := &pools{kube: mgr.GetClient(), state: state, health: o.Health, clock: clk, cloud: c, events: mgr.GetEventRecorder("coppice"), book: o.Book}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodepool").
		For(&karpenter.NodePool{}).
		Watches(&aws.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(r.ofClass)).
		Watches(&karpenter.NodeClaim{}, gathered(statusPeriod)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

func (r *pools) ofClass(ctx context.Context, o client.Object) []reconcile.Request {
	var list karpenter.NodePoolList
	if err := r.kube.List(ctx, &list); err != nil {
		return nil // the cache is stopping
	}
	var out []reconcile.Request
	for _, p := range list.Items {
		if p.Spec.Template.Spec.NodeClassRef.Name == o.GetName() {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
		}
	}
	return out
}

// statusPeriod is how often at most the changes of a pool's claims are summed up in its
// status. Each node changes its claim half a dozen times while it comes up, so that a
// write for each would cost hundreds as nodes come by the hundred; Karpenter sums up
// every 5 s.
const statusPeriod = 500 * time.Millisecond

// gathered asks for the pool of a claim that has changed, once for all changes within d.
func gathered(d time.Duration) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	ask := func(o client.Object, q queue) {
		if pool := o.GetLabels()[karpenter.LabelNodePool]; pool != "" {
			// The queue keeps the earliest time of a request that is there already.
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: pool}}, d)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { ask(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { ask(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { ask(e.Object, q) },
	}
}

// Reconcile writes one pool's status, if it differs.
func (r *pools) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pool karpenter.NodePool
	if err := r.kube.Get(ctx, req.NamespacedName, &pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.health.Reset(req.Name) // one of the same name is another
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref.Group != aws.Group {
		return ctrl.Result{}, nil // another provider's
	}
	class := &aws.EC2NodeClass{}
	if err := r.kube.Get(ctx, types.NamespacedName{Name: ref.Name}, class); apierrors.IsNotFound(err) {
		class = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get EC2NodeClass %s: %w", ref.Name, err)
	}
	if err := r.stamp(ctx, &pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := pool.DeepCopy()
	judge(&pool, class)
	nodes := r.state.Of(pool.Name)
	sum(&pool, nodes)
	options, _ := sugar.Parse(pool.Annotations) // what can't be read is told when nodes are to go
	rollout(&pool, class, nodes, options)
	again := ctrl.Result{RequeueAfter: pause(&pool, options, r.clock.Now())}
	if class != nil && apimeta.IsStatusConditionTrue(pool.Status.Conditions, karpenter.ConditionReady) {
		// A list that can't be had is told of by whoever needs it.
		if types, err := r.cloud.InstanceTypes(ctx, class); err == nil {
			if wait := r.compatible(&pool, types); wait > 0 && (again.RequeueAfter == 0 || wait < again.RequeueAfter) {
				again.RequeueAfter = wait
			}
		}
	} else {
		apimeta.RemoveStatusCondition(&pool.Status.Conditions, karpenter.ConditionNoCompatibleInstanceTypes)
	}
	r.registration(&pool, class)
	r.backOff(&pool, holdOf(r.health, r.state, before, r.clock.Now()))
	if equality.Semantic.DeepEqual(before.Status, pool.Status) {
		return again, nil
	}
	return again, client.IgnoreNotFound(r.kube.Status().Patch(ctx, &pool, client.MergeFrom(before)))
}

// judge sets the conditions that decide whether nodes may be opened from the pool.
func judge(pool *karpenter.NodePool, class *aws.EC2NodeClass) {
	put := func(condition string, status metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&pool.Status.Conditions, metav1.Condition{
			Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: pool.Generation,
		})
	}
	if why := invalid(pool); len(why) > 0 {
		put(karpenter.ConditionValidationSucceeded, metav1.ConditionFalse, "NodePoolValidationFailed", strings.Join(why, "; "))
	} else {
		put(karpenter.ConditionValidationSucceeded, metav1.ConditionTrue, karpenter.ConditionValidationSucceeded, "")
	}
	status, reason, message := classReady(class)
	put(karpenter.ConditionNodeClassReady, status, reason, message)

	for _, c := range []string{karpenter.ConditionValidationSucceeded, karpenter.ConditionNodeClassReady} {
		if got := apimeta.FindStatusCondition(pool.Status.Conditions, c); got.Status != metav1.ConditionTrue {
			put(karpenter.ConditionReady, got.Status, got.Reason, got.Message)
			return
		}
	}
	put(karpenter.ConditionReady, metav1.ConditionTrue, karpenter.ConditionReady, "")
}

func classReady(class *aws.EC2NodeClass) (status metav1.ConditionStatus, reason, message string) {
	switch {
	case class == nil:
		return metav1.ConditionFalse, "NodeClassNotFound", "NodeClass not found on cluster"
	case class.DeletionTimestamp != nil:
		return metav1.ConditionFalse, "NodeClassTerminating", "NodeClass is Terminating"
	}
	got := apimeta.FindStatusCondition(class.Status.Conditions, karpenter.ConditionReady)
	switch {
	case got == nil || got.Status == metav1.ConditionUnknown:
		return metav1.ConditionUnknown, "NodeClassReadinessUnknown", "Node Class Readiness Unknown"
	case got.Status == metav1.ConditionTrue:
		return metav1.ConditionTrue, karpenter.ConditionNodeClassReady, ""
	}
	return got.Status, got.Reason, got.Message
}

// invalid says what is wrong with a pool in ways that its CRD can't express.
func invalid(pool *karpenter.NodePool) []string {
	var out []string
	t := pool.Spec.Template
	for _, k := range []string{karpenter.LabelNodePool, corev1.LabelHostname} {
		if _, ok := t.Labels[k]; ok {
			out = append(out, fmt.Sprintf("label %s is set by the controller; remove it from the template", k))
		}
	}
	seen := map[string]bool{}
	for _, taint := range append(append([]corev1.Taint(nil), t.Spec.Taints...), t.Spec.StartupTaints...) {
		k := taint.Key + ":" + string(taint.Effect)
		if seen[k] {
			out = append(out, fmt.Sprintf("taint %s is there twice; remove one", k))
		}
		seen[k] = true
	}
	return out
}

// sum writes what the pool's nodes add up to.
func sum(pool *karpenter.NodePool, nodes []cluster.Node) {
	total := corev1.ResourceList{
		corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}, corev1.ResourceEphemeralStorage: {}, "nodes": {},
	}
	for _, n := range nodes {
		for name, q := range n.Capacity() {
			have := total[name]
			have.Add(q)
			total[name] = have
		}
	}
	count := int64(len(nodes))
	total["nodes"] = *resource.NewQuantity(count, resource.DecimalSI)
	pool.Status.Nodes = &count
	if !equality.Semantic.DeepEqual(pool.Status.Resources, total) {
		pool.Status.Resources = total
	}
}
