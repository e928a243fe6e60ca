package provision

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
)

// Options are what provisioning depends on beside the cloud.
type Options struct {
	Batch Batch
	// Limits bound what the nodes of all pools may add up to; empty is unlimited.
	Limits corev1.ResourceList
	// Preferences says what pods' preferences are worth, MinValues what happens where
	// a pool's minValues can't be met.
	Preferences pack.Policy
	MinValues   pack.MinValuesPolicy
	// Nominator tells the scheduler of plans.
	Nominator *Nominator
	// Book takes down what was decided.
	Book *record.Book
	// Health says which pools to hold back.
	Health *health.Tracker
	// Metrics count what happens.
	Metrics *metrics.Set
}

// Setup adds the planner, the keeper of static pools and the NodePool controller to
// mgr. synced says when the state is complete: a plan made earlier would open nodes
// that are there already.
func Setup(mgr ctrl.Manager, state *cluster.State, synced func() bool, c Cloud, clk clock.Clock, o Options) error {
	p := &Planner{
		kube: mgr.GetClient(), state: state, synced: synced, cloud: c,
		events: mgr.GetEventRecorder("coppice"), clock: clk, batch: o.Batch, wake: make(chan struct{}, 1), policy: pack.Options{Preferences: o.Preferences, MinValues: o.MinValues},
		model: cluster.NewModel(), book: o.Book, told: map[string]said{}, places: map[string]string{}, nominator: o.Nominator,
		health: o.Health, held: map[string]health.Hold{}, launching: map[string]bool{}, fleetToken: fleetToken, metrics: o.Metrics,
	}
	p.model.Limit(o.Limits)
	if err := p.watch(context.Background(), mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("add planner: %w", err)
	}
	if err := setupStatic(mgr, state, synced, c, clk, o); err != nil {
		return fmt.Errorf("add keeper of static pools: %w", err)
	}
	return setupPools(mgr, state, c, clk, o)
}
