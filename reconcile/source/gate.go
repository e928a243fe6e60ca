package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// dependencyDelay is the pause before a source that another waits for is looked at
// again.
const dependencyDelay = 5 * time.Second

// dependencies waits until the sources that this one depends on are ready.
func (p *pass) dependencies(ctx context.Context) error {
	for _, d := range p.src.Spec.DependsOn {
		key := client.ObjectKey{Namespace: d.Namespace, Name: d.Name}
		if key.Namespace == "" {
			key.Namespace = p.src.Namespace
		}
		if key == client.ObjectKeyFromObject(p.src) {
			return terminally(reasonDependency, errors.New("spec.dependsOn names this source itself; remove it"))
		}
		other := &coppice.NodeSource{}
		err := p.client.Get(ctx, key, other)
		switch {
		case apierrors.IsNotFound(err):
			return waiting(reasonDependency, dependencyDelay, fmt.Errorf("there is no NodeSource %s, which spec.dependsOn names", key))
		case err != nil:
			return kubeFailure(reasonApply, fmt.Errorf("read NodeSource %s: %w", key, err))
		}
		ready := meta.FindStatusCondition(other.Status.Conditions, conditionReady)
		// A pause is a change of the spec too, and leaves what was said before it.
		if ready == nil || ready.Status != "True" || other.Status.ObservedGeneration != other.Generation ||
			ready.ObservedGeneration != other.Generation && !other.Spec.Suspend {
			return waiting(reasonDependency, dependencyDelay, fmt.Errorf("NodeSource %s, which spec.dependsOn names, is not ready", key))
		}
	}
	return nil
}

// identities are the appliers that act as ServiceAccounts.
type identities struct {
	as  func(namespace, name string) (client.Client, error)
	mu  sync.Mutex
	all map[string]*kube.Applier
}

// of returns the applier of a source: its ServiceAccount's, or own.
func (i *identities) of(src *coppice.NodeSource, own *kube.Applier) (*kube.Applier, error) {
	name := src.Spec.ServiceAccountName
	if name == "" {
		return own, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	key := src.Namespace + "/" + name
	if a := i.all[key]; a != nil {
		return a, nil
	}
	c, err := i.as(src.Namespace, name)
	if err != nil {
		return nil, terminally(reasonIdentity, fmt.Errorf("act as ServiceAccount %s: %w", key, err))
	}
	if i.all == nil {
		i.all = map[string]*kube.Applier{}
	}
	i.all[key] = kube.NewApplier(c)
	return i.all[key], nil
}

// impersonate makes clients that act as ServiceAccounts: the API server asks the
// controller's own account for the verb impersonate, and then judges each request by
// the rights of the other.
func impersonate(mgr ctrl.Manager) func(namespace, name string) (client.Client, error) {
	return func(namespace, name string) (client.Client, error) {
		cfg := rest.CopyConfig(mgr.GetConfig())
		cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name}
		return client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	}
}
