package reconcile

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/coppice-dev/coppice/reconcile/pullrequest"
	"github.com/coppice-dev/coppice/reconcile/source"
)

// runSources runs what keeps cluster and Git in step and nothing else: NodePools
// are applied and reported on, and everything that follows from them is another
// engine's.
func runSources(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := source.Setup(mgr, o.Source); err != nil {
		return fmt.Errorf("set up source: %w", err)
	}
	if err := pullrequest.Setup(mgr, pullrequest.Options{ClusterName: o.Source.ClusterName, Evaluate: o.Source.Evaluate, Jitter: o.Source.Jitter, EngineOff: true}); err != nil {
		return fmt.Errorf("set up pullrequest: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return mgr.Start(ctx)
}

// karpenterLease is the Lease by which Karpenter's replicas agree on a leader
// (LeaderElectionID in its pkg/operator).
const karpenterLease = "karpenter-leader-election"

// leaseCheck is how often the Lease is looked at: Karpenter needs its 15 s to take
// over from a leader that died, and does little in the first seconds.
const leaseCheck = 10 * time.Second

// alone keeps two engines from working on one fleet: it ends the controllers when
// Karpenter leads.
type alone struct {
	live  client.Reader
	clock clock.WithTicker
}

// NeedLeaderElection lets a standby wait while Karpenter still runs.
func (a *alone) NeedLeaderElection() bool { return true }

// Start returns an error as soon as Karpenter leads, nil when ctx ends.
func (a *alone) Start(ctx context.Context) error {
	tick := a.clock.NewTicker(leaseCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		if err := a.check(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// check fails if Karpenter leads. What can't be found out is logged and is no
// reason to leave pods without nodes.
func (a *alone) check(ctx context.Context) error {
	var leases coordinationv1.LeaseList
	if err := a.live.List(ctx, &leases, client.MatchingFields{"metadata.name": karpenterLease}); err != nil {
		if ctx.Err() == nil && !apierrors.IsTimeout(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Look for Karpenter's Lease")
		}
		return nil
	}
	for i := range leases.Items {
		if l := &leases.Items[i]; held(l, a.clock.Now()) {
			return fmt.Errorf("Karpenter manages this cluster's nodes (%s holds Lease %s/%s); scale it down first, or run with --engine=off",
				*l.Spec.HolderIdentity, l.Namespace, l.Name)
		}
	}
	return nil
}

// held reports whether somebody holds a Lease and has renewed it in time.
func held(l *coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity != "" && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}
