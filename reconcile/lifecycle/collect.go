package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// grace is how old an instance without a claim must be before it counts as
	// lost. Its claim exists before it does, so this only covers the time that a
	// list of claims may lag behind.
	grace = 30 * time.Second
	// collectOften and collectRarely are the periods after a start, when a crash
	// may have left something behind, and later.
	collectOften  = 10 * time.Second
	collectRarely = 2 * time.Minute
	// oftenRounds is how many rounds run at the shorter period.
	oftenRounds = 12
)

// collector compares claims with instances and Nodes: an instance without a claim is
// terminated, a claim whose instance is gone is deleted, a Node that has neither any
// more is let go.
type collector struct {
	kube  client.Client
	live  client.Reader // past the cache: a claim not seen yet must not cost its instance
	cloud Cloud
	clock clock.Clock

	metrics *metrics.Set
}

// NeedLeaderElection keeps a standby from collecting what the leader launches.
func (c *collector) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (c *collector) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("collector")
	for round := 0; ; round++ {
		more, err := c.collect(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error(err, "compare NodeClaims with instances")
		}
		period := collectRarely
		if round < oftenRounds || more {
			period = collectOften
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.clock.After(period):
		}
	}
}

// collect does one round, and reports whether the next has something to finish.
func (c *collector) collect(ctx context.Context) (more bool, err error) {
	now := c.clock.Now()
	// Nodes first, then instances: whatever is listed here had its instance before, and
	// that its claim.
	var nodes corev1.NodeList
	if err := c.kube.List(ctx, &nodes); err != nil {
		return false, fmt.Errorf("list Nodes: %w", err)
	}
	instances, err := c.cloud.Instances(ctx)
	if err != nil {
		return false, fmt.Errorf("list instances: %w", err)
	}
	var claims karpenter.NodeClaimList
	if err := c.live.List(ctx, &claims); err != nil {
		return false, fmt.Errorf("list NodeClaims: %w", err)
	}
	lost, gone := compareClaims(claims.Items, instances, now)
	// One that can't be ended holds up no other.
	var errs []error
	for _, i := range lost {
		if err := c.cloud.Terminate(ctx, i.ID); err != nil {
			errs = append(errs, fmt.Errorf("terminate instance %s, which no NodeClaim owns: %w", i.ID, err))
			continue
		}
		c.metrics.InstancesWithoutClaim.WithLabelValues().Inc()
		ctrl.LoggerFrom(ctx).Info("terminated an instance that no NodeClaim owns", "instance", i.ID, "type", i.Type)
	}
	for _, claim := range claimsWithoutNode(claims.Items, now) {
		there, err := c.nodeExists(ctx, claim.Status.NodeName)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if there {
			continue
		}
		if err := c.kube.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete NodeClaim %s, whose Node is gone: %w", claim.Name, err))
			continue
		}
		ctrl.LoggerFrom(ctx).Info("deleted a NodeClaim whose Node is gone", "NodeClaim", claim.Name, "Node", claim.Status.NodeName)
	}
	for _, claim := range gone {
		ready, err := c.stillReady(ctx, claim)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if ready {
			continue // the cloud's list may lag; a kubelet that answers doesn't
		}
		if err := c.kube.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete NodeClaim %s, whose instance is gone: %w", claim.Name, err))
			continue
		}
		ctrl.LoggerFrom(ctx).Info("deleted a NodeClaim whose instance is gone", "NodeClaim", claim.Name)
	}
	more, err = c.release(ctx, orphans(nodes.Items, claims.Items), instances)
	return more, errors.Join(append(errs, err)...)
}

// nodeExists asks the API server only about a Node that the cache doesn't know.
func (c *collector) nodeExists(ctx context.Context, name string) (bool, error) {
	var node corev1.Node
	err := c.kube.Get(ctx, client.ObjectKey{Name: name}, &node)
	if apierrors.IsNotFound(err) {
		err = c.live.Get(ctx, client.ObjectKey{Name: name}, &node)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get Node %s: %w", name, err)
	}
	return true, nil
}

func (c *collector) stillReady(ctx context.Context, claim *karpenter.NodeClaim) (bool, error) {
	if claim.Status.NodeName == "" {
		return false, nil
	}
	var node corev1.Node
	if err := c.kube.Get(ctx, client.ObjectKey{Name: claim.Status.NodeName}, &node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return cluster.Ready(&node), nil
}

// claimsWithoutNode returns the living claims that should have a Node, to be asked
// for: a kubelet registers once, so a Node that was removed past its finalizer never
// comes back by itself.
func claimsWithoutNode(claims []karpenter.NodeClaim, now time.Time) []*karpenter.NodeClaim {
	var out []*karpenter.NodeClaim
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp == nil && c.Status.NodeName != "" && isTrue(c, karpenter.ConditionRegistered) &&
			now.Sub(since(c, karpenter.ConditionRegistered, now)) > grace {
			out = append(out, c)
		}
	}
	return out
}

// compareClaims returns the instances that no claim owns, and the living claims
// whose instance the cloud doesn't list any more.
func compareClaims(claims []karpenter.NodeClaim, instances []cloud.Instance, now time.Time) (lost []cloud.Instance, gone []*karpenter.NodeClaim) {
	owned, open := map[string]bool{}, map[string]bool{}
	for i := range claims {
		if id := claims[i].Status.ProviderID; id != "" {
			owned[id] = true
			continue
		}
		// It may yet get one that was launched for it. One that has its instance gets no
		// other: whatever else was launched for it is too many.
		owned[string(claims[i].UID)] = true
		if f, ok := cloud.FleetOf(&claims[i]); ok {
			open[f.Token] = true
		}
	}
	listed := map[string]bool{}
	for _, i := range instances {
		listed[i.ProviderID] = true
		claimed := owned[i.ProviderID] || owned[i.ClaimUID] || open[i.Tags[cloud.TagFleet]]
		if !claimed && i.State != "shutting-down" && now.Sub(i.LaunchTime) > grace {
			lost = append(lost, i)
		}
	}
	for i := range claims {
		c := &claims[i]
		launched := since(c, karpenter.ConditionLaunched, now)
		if c.Status.ProviderID != "" && c.DeletionTimestamp == nil && !listed[c.Status.ProviderID] && now.Sub(launched) > grace {
			gone = append(gone, c)
		}
	}
	return lost, gone
}
