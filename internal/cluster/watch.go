package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// feed says where the events of one kind go.
type feed struct {
	object client.Object
	set    func(any)
	del    func(client.Object)
}

// Watch feeds the state from the cache's informers until the cache stops. The
// state is complete once the returned function has said so.
func Watch(ctx context.Context, c cache.Cache, s *State) (synced func() bool, err error) {
	feeds := []feed{
		{&corev1.Pod{}, func(o any) { s.SetPod(o.(*corev1.Pod)) }, func(o client.Object) { s.DeletePod(key(o)) }},
		{&corev1.Node{}, func(o any) { s.SetNode(o.(*corev1.Node)) }, func(o client.Object) { s.DeleteNode(o.GetName()) }},
		{&karpenter.NodeClaim{}, func(o any) { s.SetClaim(o.(*karpenter.NodeClaim)) }, func(o client.Object) { s.DeleteClaim(o.GetName()) }},
		{&appsv1.DaemonSet{}, func(o any) { s.SetDaemonSet(o.(*appsv1.DaemonSet)) }, func(o client.Object) { s.DeleteDaemonSet(key(o)) }},
	}
	for _, o := range []client.Object{
		&corev1.Namespace{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{}, &storagev1.CSINode{},
		&policyv1.PodDisruptionBudget{},
	} {
		feeds = append(feeds, feed{o, s.Set, func(o client.Object) { s.Delete(o) }})
	}
	var registrations []toolscache.ResourceEventHandlerRegistration
	for _, f := range feeds {
		informer, err := c.GetInformer(ctx, f.object)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", f.object, err)
		}
		r, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    f.set,
			UpdateFunc: func(_, o any) { f.set(o) },
			DeleteFunc: func(o any) {
				if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				if obj, ok := o.(client.Object); ok {
					f.del(obj)
				}
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", f.object, err)
		}
		registrations = append(registrations, r)
	}
	return func() bool {
		for _, r := range registrations {
			if !r.HasSynced() {
				return false
			}
		}
		return true
	}, nil
}
