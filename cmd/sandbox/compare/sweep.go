package compare

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// installCRDs makes the API server serve the kinds that both use.
func (b *bench) installCRDs(ctx context.Context) error {
	for _, crd := range schemas.CRDs() {
		if err := b.client.Create(ctx, crd); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("install %s: %w", crd.Name, err)
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("a minute is over"))
	defer cancel()
	return await.Objects(limited, b.client, &apiextensionsv1.CustomResourceDefinitionList{}, func(crds []*apiextensionsv1.CustomResourceDefinition) (bool, string) {
		for _, crd := range crds {
			served := false
			for _, c := range crd.Status.Conditions {
				served = served || c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}
			if !served {
				return false, crd.Name + " is not served yet"
			}
		}
		return true, ""
	})
}

// sweepLimit bounds how long it takes to sweep up after 2,000 pods.
const sweepLimit = 2 * time.Minute

// sweep leaves neither machines nor workloads nor anything of a controller behind.
// No controller runs, so that it takes their finalizers off itself.
func (b *bench) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sweepLimit, fmt.Errorf("%s is over", sweepLimit))
	defer cancel()
	for _, kind := range []client.Object{&appsv1.Deployment{}, &policyv1.PodDisruptionBudget{}} {
		if err := b.client.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.PropagationPolicy("Background")); err != nil {
			return fmt.Errorf("sweep up: %w", err)
		}
	}
	b.stack.EC2.Reset()
	for {
		left := 0
		for _, list := range []client.ObjectList{
			&appsv1.ReplicaSetList{}, &corev1.PodList{}, &karpenter.NodeClaimList{}, &corev1.NodeList{}, &karpenter.NodePoolList{}, &aws.EC2NodeClassList{},
		} {
			n, err := b.remove(ctx, list)
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			// Nothing comes after: machines ended before their Nodes were deleted.
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("sweep up: %d objects are left: %w", left, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// remove deletes all objects of a list's kind at once and says how many there were.
func (b *bench) remove(ctx context.Context, list client.ObjectList) (int, error) {
	var opts []client.ListOption
	switch list.(type) {
	case *corev1.PodList, *appsv1.ReplicaSetList:
		opts = append(opts, client.InNamespace(namespace))
	case *corev1.NodeList:
		opts = append(opts, stack.NotSystem())
	}
	if err := b.client.List(ctx, list, opts...); err != nil {
		return 0, fmt.Errorf("sweep up: %w", err)
	}
	var work []func() error
	err := meta.EachListItem(list, func(o runtime.Object) error {
		obj, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("the list holds %T", o)
		}
		work = append(work, func() error {
			if len(obj.GetFinalizers()) > 0 {
				none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				if err := b.client.Patch(ctx, obj, none); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("sweep up: %w", err)
				}
			}
			err := b.client.Delete(ctx, obj, client.GracePeriodSeconds(0), client.PropagationPolicy("Background"))
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("sweep up: %w", err)
			}
			return nil
		})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(work), inParallel(work)
}
