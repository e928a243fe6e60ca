package source

import (
	"context"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// asked lets changes of a source through that ask for something: a new spec, a
// request to look now, or a commit that is accepted. Its own status doesn't.
func asked() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			request(e.ObjectOld) != request(e.ObjectNew) || delivered(e.ObjectOld) != delivered(e.ObjectNew) ||
			accepted(e.ObjectOld) != accepted(e.ObjectNew)
	}}
}

// touched lets changes of an applied object through that can be drift. A status
// is written every few seconds and never is.
func touched() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	}}
}

// request is the value of the annotation that asks for a pass now.
func request(o client.Object) string { return o.GetAnnotations()[coppice.RequestedAtAnnotation] }

// delivered says when the forge last told of a push.
func delivered(o client.Object) string { return o.GetAnnotations()[coppice.DeliveredAtAnnotation] }

// sourcesOf returns the sources whose inventory holds an object.
func (r *Reconciler) sourcesOf(ctx context.Context, o client.Object) []reconcile.Request {
	gvk, err := apiutil.GVKForObject(o, r.client.Scheme())
	if err != nil {
		return nil
	}
	id := strings.Join([]string{o.GetNamespace(), o.GetName(), gvk.Group, gvk.Kind}, "_")
	var list coppice.NodeSourceList
	if err := r.client.List(ctx, &list); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		src := &list.Items[i]
		if src.Status.Inventory == nil {
			continue
		}
		if _, ok := kube.Find(src.Status.Inventory.Entries, id); ok {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: src.Namespace, Name: src.Name}})
		}
	}
	return out
}
