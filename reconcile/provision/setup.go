package provision

import (
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/record"
)

// Setup adds the planner and the NodePool controller to mgr. synced says when the
// state is complete: a plan made earlier would open nodes that are there already.
func Setup(mgr ctrl.Manager, state *cluster.State, synced func() bool, c Cloud, clk clock.Clock, batch Batch, book *record.Book) error {
	p := &Planner{
		kube: mgr.GetClient(), state: state, synced: synced, cloud: c,
		events: mgr.GetEventRecorder("coppice"), clock: clk, batch: batch,
		model: cluster.NewModel(), book: book, told: map[string]said{}, places: map[string]string{},
	}
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("add planner: %w", err)
	}
	return setupPools(mgr, state)
}
