package nodeclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// observer tells the cloud what nodes turned out to have.
type observer struct {
	kube  client.Client
	cloud Cloud
}

func setupObserver(mgr ctrl.Manager, c Cloud) error {
	// Once for every node that is there at the start, and once for each new one.
	initialized := predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return isInitialized(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return isInitialized(e.ObjectNew) && !isInitialized(e.ObjectOld) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeclass-observer").
		For(&karpenter.NodeClaim{}, builder.WithPredicates(initialized)).
		Complete(&observer{kube: mgr.GetClient(), cloud: c})
}

func isInitialized(o client.Object) bool {
	claim, ok := o.(*karpenter.NodeClaim)
	return ok && apimeta.IsStatusConditionTrue(claim.Status.Conditions, karpenter.ConditionInitialized)
}

// Reconcile observes the node of one claim.
func (r *observer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var claim karpenter.NodeClaim
	if err := r.kube.Get(ctx, req.NamespacedName, &claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Spec.NodeClassRef == nil || claim.Spec.NodeClassRef.Group != aws.Group {
		return ctrl.Result{}, nil // another provider's
	}
	var node corev1.Node
	if err := r.kube.Get(ctx, types.NamespacedName{Name: claim.Status.NodeName}, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.cloud.Observe(claim.Labels[corev1.LabelInstanceTypeStable], claim.Status.ImageID, node.Status.Capacity)
	return ctrl.Result{}, nil
}
