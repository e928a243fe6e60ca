package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// holdOf returns what the pool's failures demand, those before a restart included. A
// probe whose claim is gone without a word, as when it was removed past its finalizer,
// doesn't count any more.
func holdOf(tracker *health.Tracker, state *cluster.State, pool *karpenter.NodePool, now time.Time) health.Hold {
	if before := heldBefore(pool); tracker.Restore(pool.Name, before, now) {
		if claim := awaited(state.Of(pool.Name), before.Stage); claim != "" {
			tracker.Probe(pool.Name, claim)
		}
	}
	h := tracker.Hold(pool.Name)
	if h.Probing != "" && state.Claim(h.Probing) == nil {
		tracker.Gone(pool.Name, h.Probing)
		h.Probing = ""
	}
	return h
}

// probe leaves of each pool whose launches failed only the first new node in the
// plan, and reports whether that withheld any. Whether the pool works again shows
// by one node as well as by a hundred.
func (p *Planner) probe(plan *pack.Plan) (withheld bool) {
	tried := map[string]bool{}
	plan.NewNodes = slices.DeleteFunc(plan.NewNodes, func(n pack.NewNode) bool {
		if p.held[n.Pool].Failures == 0 {
			return false
		}
		if tried[n.Pool] {
			withheld = true
			return true
		}
		tried[n.Pool] = true
		return false
	})
	return withheld
}

// cancel deletes claims that were made here, aren't launched yet and that no pod is
// planned onto any more, as when its pods are gone or fit on a node that became
// free. A launch that is under way at the same moment is ended again by the claim's
// finalizer.
func (p *Planner) cancel(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, machine := range p.places {
		wanted[machine] = true
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.launching)) {
		claim := p.state.Claim(name)
		if claim == nil || claim.DeletionTimestamp != nil || claim.Status.ProviderID != "" ||
			apimeta.IsStatusConditionTrue(claim.Status.Conditions, karpenter.ConditionLaunched) {
			delete(p.launching, name)
			continue
		}
		if wanted[name] {
			continue
		}
		p.events.Eventf(claim, nil, corev1.EventTypeNormal, "Cancelled", "Plan", "No pod needs NodeClaim %s any more, and it isn't launched yet", name)
		err := p.kube.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("cancel NodeClaim %s: %w", name, err))
			continue
		}
		p.metrics.NodeClaimsCancelled.WithLabelValues(claim.Labels[karpenter.LabelNodePool]).Inc()
		delete(p.launching, name)
	}
	return errors.Join(errs...)
}
