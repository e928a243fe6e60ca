package disrupt

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// recheck is how often a claim is compared with the cloud when nothing else
// prompts it: Karpenter's period.
const recheck = 5 * time.Minute

// drift marks claims that differ from what would be launched today.
type drift struct {
	kube   client.Client
	cloud  Cloud
	events events.EventRecorder
}

func setupDrift(mgr ctrl.Manager, c Cloud) error {
	r := &drift{kube: mgr.GetClient(), cloud: c, events: mgr.GetEventRecorder("coppice")}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeclaim-drift").
		For(&karpenter.NodeClaim{}).
		Watches(&karpenter.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.claims(func(c *karpenter.NodeClaim) string {
			return c.Labels[karpenter.LabelNodePool]
		})), builder.WithPredicates(
			// Its status follows its nodes, so that each of them would be compared anew
			// whenever another comes.
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}),
		)).
		Watches(&aws.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(r.claims(func(c *karpenter.NodeClaim) string {
			return c.Spec.NodeClassRef.Name
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(r)
}

// claims maps an object to the NodeClaims that name it.
func (r *drift) claims(name func(*karpenter.NodeClaim) string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var list karpenter.NodeClaimList
		if err := r.kube.List(ctx, &list); err != nil {
			return nil // the cache is stopping
		}
		var out []reconcile.Request
		for i := range list.Items {
			if name(&list.Items[i]) == o.GetName() {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
			}
		}
		return out
	}
}

// Reconcile changes in place what its pool wants changed so, and sets or clears one claim's Drifted condition.
func (r *drift) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var claim karpenter.NodeClaim
	if err := r.kube.Get(ctx, req.NamespacedName, &claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp != nil || claim.Spec.NodeClassRef.Group != aws.Group ||
		!apimeta.IsStatusConditionTrue(claim.Status.Conditions, karpenter.ConditionLaunched) {
		return ctrl.Result{}, nil
	}
	var pool karpenter.NodePool
	if err := r.kube.Get(ctx, types.NamespacedName{Name: claim.Labels[karpenter.LabelNodePool]}, &pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // a claim of its own never drifts
	}
	// What was changed comes back by the watch.
	if judge, err := r.inPlace(ctx, &claim, &pool); apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	} else if !judge {
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	reason, err := r.reason(ctx, &claim, &pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	if tooEarly(&claim, reason) {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	before := claim.DeepCopy()
	if reason == "" {
		apimeta.RemoveStatusCondition(&claim.Status.Conditions, karpenter.ConditionDrifted)
	} else {
		apimeta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
			Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: reason, Message: reason, ObservedGeneration: claim.Generation,
		})
	}
	if !equality.Semantic.DeepEqual(before.Status, claim.Status) {
		// The list of conditions is replaced as a whole, so the write must fail if
		// the lifecycle controller has written it since.
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.kube.Status().Patch(ctx, &claim, patch); apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		} else if err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// foreign reports whether a claim carries a hash that another engine made.
func foreign(claim *karpenter.NodeClaim) bool {
	pool, class := claim.Annotations[karpenter.AnnotationNodePoolHashVersion], claim.Annotations[aws.AnnotationEC2NodeClassHashVersion]
	return pool != "" && pool != karpenter.NodePoolHashVersion || class != "" && class != aws.EC2NodeClassHashVersion
}

// tooEarly reports whether what another engine has said of a claim's drift must stand for
// now. Its hashes become ours within moments, by the controllers of its pool and class,
// which ask that condition whether the claim was as declared: a reason of ours in its
// place would make one that the template has put out of date pass for up to date.
func tooEarly(claim *karpenter.NodeClaim, reason string) bool {
	return foreign(claim) && (reason == "" || apimeta.IsStatusConditionTrue(claim.Status.Conditions, karpenter.ConditionDrifted))
}

// reason finds the first way in which the claim differs, cheapest first.
func (r *drift) reason(ctx context.Context, claim *karpenter.NodeClaim, pool *karpenter.NodePool) (string, error) {
	if reason := cluster.Declare(pool).Drift(claim); reason != "" {
		return reason, nil
	}
	var class aws.EC2NodeClass
	if err := r.kube.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, &class); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("get EC2NodeClass %s: %w", claim.Spec.NodeClassRef.Name, err)
	}
	return r.cloud.Drifted(ctx, &class, claim)
}
