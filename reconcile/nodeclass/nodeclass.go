package nodeclass

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Cloud is what a node class asks of a cloud.
type Cloud interface {
	ResolveClass(ctx context.Context, class *aws.EC2NodeClass) (aws.EC2NodeClassStatus, error)
	CleanClass(ctx context.Context, class *aws.EC2NodeClass) error
	Observe(instanceType, imageID string, capacity corev1.ResourceList)
}

const (
	// readyInterval is how soon a ready class is looked at again, for new images,
	// subnets and security groups: Karpenter's period for images and groups.
	readyInterval = 5 * time.Minute
	// reservedInterval is for a class with capacity reservations: what an instance leaves
	// of one is paid for all the time. It is Karpenter's period too.
	reservedInterval = time.Minute
	// unreadyInterval is for a class that somebody is probably mending right now.
	unreadyInterval = 30 * time.Second
	// waitingInterval is how often a deleted class says what it waits for. The end of
	// the last NodeClaim is noticed by itself.
	waitingInterval = 10 * time.Minute

	// retryFirst and retryMost bound how soon a failure of the cloud is tried again.
	retryFirst = time.Second
	retryMost  = time.Minute

	workers = 10
)

// Reconciler keeps EC2NodeClasses true.
type Reconciler struct {
	kube   client.Client
	cloud  Cloud
	events events.EventRecorder
}

// Setup adds the EC2NodeClass controller and the observer of nodes to mgr.
func Setup(mgr ctrl.Manager, c Cloud) error {
	if err := setupObserver(mgr, c); err != nil {
		return fmt.Errorf("add observer of nodes: %w", err)
	}
	r := &Reconciler{kube: mgr.GetClient(), cloud: c, events: mgr.GetEventRecorder("coppice")}
	// Of a claim only its end matters: a deleted class may be waiting for it.
	ends := predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeclass").
		// The status is ours alone; a deletion raises the generation as well.
		For(&aws.EC2NodeClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&karpenter.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(classOf), builder.WithPredicates(ends)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryMost),
		}).
		Complete(r)
}

func classOf(_ context.Context, o client.Object) []reconcile.Request {
	if ref := o.(*karpenter.NodeClaim).Spec.NodeClassRef; ref != nil && ref.Group == aws.Group {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: ref.Name}}}
	}
	return nil
}

// Reconcile brings one class's status up to date, or lets a deleted one go.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var class aws.EC2NodeClass
	if err := r.kube.Get(ctx, req.NamespacedName, &class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if class.DeletionTimestamp != nil {
		after, err := r.finalize(ctx, &class)
		return ctrl.Result{RequeueAfter: after}, err
	}
	if err := r.stamp(ctx, &class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	status, resolveErr := r.cloud.ResolveClass(ctx, &class)
	if err := r.write(ctx, &class, status); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if resolveErr != nil {
		return ctrl.Result{}, fmt.Errorf("resolve EC2NodeClass %s: %w", class.Name, resolveErr)
	}
	switch {
	case !apimeta.IsStatusConditionTrue(status.Conditions, aws.ConditionReady):
		return ctrl.Result{RequeueAfter: unreadyInterval}, nil
	case len(class.Spec.CapacityReservationSelectorTerms) > 0:
		return ctrl.Result{RequeueAfter: reservedInterval}, nil
	}
	return ctrl.Result{RequeueAfter: readyInterval}, nil
}

// stamp sets the finalizer and the class's hash, and carries its claims over from
// another way of hashing.
func (r *Reconciler) stamp(ctx context.Context, class *aws.EC2NodeClass) error {
	want := class.DeepCopy()
	controllerutil.AddFinalizer(want, aws.Finalizer)
	hash := class.Hash()
	if class.Annotations[aws.AnnotationEC2NodeClassHashVersion] != aws.EC2NodeClassHashVersion {
		// The claims first: once the class has the version, nobody looks again.
		if err := r.restamp(ctx, class, hash); err != nil {
			return err
		}
	}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[aws.AnnotationEC2NodeClassHash] = hash
	want.Annotations[aws.AnnotationEC2NodeClassHashVersion] = aws.EC2NodeClassHashVersion
	if equality.Semantic.DeepEqual(class.ObjectMeta, want.ObjectMeta) {
		return nil
	}
	// Finalizers are replaced as a list, so the write must fail if somebody has
	// changed them since.
	patch := client.MergeFromWithOptions(class.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if err := r.kube.Patch(ctx, want, patch); err != nil {
		return fmt.Errorf("stamp EC2NodeClass %s: %w", class.Name, err)
	}
	class.ObjectMeta = want.ObjectMeta
	return nil
}

// restamp gives claims whose hash was made by another algorithm today's hash: theirs
// can't be compared, and the next change of the class must drift them.
func (r *Reconciler) restamp(ctx context.Context, class *aws.EC2NodeClass, hash string) error {
	claims, err := r.claims(ctx, class)
	if err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		want := restamped(claim, hash)
		if want == nil {
			continue
		}
		if err := r.kube.Patch(ctx, want, client.MergeFrom(claim)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("stamp NodeClaim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// restamped returns the claim with the hash, or nil if it needs none. A claim that
// has drifted already keeps a hash that isn't the class's, so that it stays drifted.
func restamped(claim *karpenter.NodeClaim, hash string) *karpenter.NodeClaim {
	version, stamped := claim.Annotations[aws.AnnotationEC2NodeClassHashVersion]
	if !stamped || version == aws.EC2NodeClassHashVersion {
		return nil
	}
	want := claim.DeepCopy()
	want.Annotations[aws.AnnotationEC2NodeClassHashVersion] = aws.EC2NodeClassHashVersion
	if !apimeta.IsStatusConditionTrue(claim.Status.Conditions, karpenter.ConditionDrifted) {
		want.Annotations[aws.AnnotationEC2NodeClassHash] = hash
	}
	return want
}

// write stores the status if it changed, and tells of the conditions that did.
func (r *Reconciler) write(ctx context.Context, class *aws.EC2NodeClass, status aws.EC2NodeClassStatus) error {
	if equality.Semantic.DeepEqual(class.Status, status) {
		return nil
	}
	want := class.DeepCopy()
	want.Status = status
	if err := r.kube.Status().Patch(ctx, want, client.MergeFrom(class)); err != nil {
		return fmt.Errorf("write status of EC2NodeClass %s: %w", class.Name, err)
	}
	for _, c := range transitions(class.Status.Conditions, status.Conditions) {
		r.events.Eventf(class, nil, c.eventType, c.condition, "Resolve", "%s", c.text)
	}
	return nil
}

// finalize lets a deleted class go once nothing refers to it.
func (r *Reconciler) finalize(ctx context.Context, class *aws.EC2NodeClass) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(class, aws.Finalizer) {
		return 0, nil
	}
	claims, err := r.claims(ctx, class)
	if err != nil {
		return 0, err
	}
	if len(claims) > 0 {
		r.events.Eventf(class, nil, corev1.EventTypeNormal, "WaitingOnNodeClaimTermination", "Delete", "%s", waitingFor(claims))
		return waitingInterval, nil
	}
	if err := r.cloud.CleanClass(ctx, class); err != nil {
		return 0, fmt.Errorf("clean up after EC2NodeClass %s: %w", class.Name, err)
	}
	want := class.DeepCopy()
	controllerutil.RemoveFinalizer(want, aws.Finalizer)
	patch := client.MergeFromWithOptions(class, client.MergeFromWithOptimisticLock{})
	if err := r.kube.Patch(ctx, want, patch); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("let EC2NodeClass %s go: %w", class.Name, err)
	}
	return 0, nil
}

// claims are those that refer to the class, in the order of the cache.
func (r *Reconciler) claims(ctx context.Context, class *aws.EC2NodeClass) ([]karpenter.NodeClaim, error) {
	var list karpenter.NodeClaimList
	if err := r.kube.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list NodeClaims of EC2NodeClass %s: %w", class.Name, err)
	}
	var out []karpenter.NodeClaim
	for _, c := range list.Items {
		if ref := c.Spec.NodeClassRef; ref != nil && ref.Group == aws.Group && ref.Name == class.Name {
			out = append(out, c)
		}
	}
	return out, nil
}
