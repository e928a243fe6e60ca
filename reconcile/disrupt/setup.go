package disrupt

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Cloud is what disruption asks of a cloud.
type Cloud interface {
	InstanceTypes(ctx context.Context, class *aws.EC2NodeClass) ([]cloud.InstanceType, error)
	// Drifted says how a claim's instance differs from what its class would launch
	// today, as a condition's reason, or "" if it doesn't.
	Drifted(ctx context.Context, class *aws.EC2NodeClass, claim *karpenter.NodeClaim) (string, error)
	// Shifted returns the IDs of zones that the cluster's traffic is moved away from.
	Shifted(ctx context.Context) (map[string]bool, error)
	// Tag adds tags to an instance.
	Tag(ctx context.Context, id string, tags map[string]string) error
	// Reboot restarts an instance.
	Reboot(ctx context.Context, id string) error
}

// Setup adds the loop and the drift controller to mgr. The policy is that by which pending
// pods are planned for.
func Setup(mgr ctrl.Manager, state *cluster.State, synced func() bool, c Cloud, clk clock.Clock, gates Gates, policy pack.Options, book *record.Book) error {
	m, err := newMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	l := &loop{
		kube: mgr.GetClient(), live: mgr.GetAPIReader(), cloud: c, state: state, model: cluster.NewModel(), synced: synced,
		events: mgr.GetEventRecorder("coppice"), clock: clk, book: book, metrics: m, gates: gates, policy: policy,
		rollouts: map[string]Rollout{}, misses: map[string]int{}, failed: map[string]time.Time{}, told: map[string]told{},
	}
	if err := mgr.Add(l); err != nil {
		return fmt.Errorf("add disruption loop: %w", err)
	}
	return setupDrift(mgr, c)
}
