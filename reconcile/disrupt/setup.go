package disrupt

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Cloud is what disruption asks of a cloud.
type Cloud interface {
	// Drifted says how a claim's instance differs from what its class would launch
	// today, as a condition's reason, or "" if it doesn't.
	Drifted(ctx context.Context, class *aws.EC2NodeClass, claim *karpenter.NodeClaim) (string, error)
}

// Setup adds the loop and the drift controller to mgr.
func Setup(mgr ctrl.Manager, state *cluster.State, synced func() bool, c Cloud, clk clock.Clock) error {
	l := &loop{
		kube: mgr.GetClient(), live: mgr.GetAPIReader(), state: state, synced: synced,
		events: mgr.GetEventRecorder("coppice"), clock: clk,
	}
	if err := mgr.Add(l); err != nil {
		return fmt.Errorf("add disruption loop: %w", err)
	}
	return setupDrift(mgr, c)
}
