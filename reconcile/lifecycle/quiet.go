package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// quietPeriod is how often it is looked which nodes have become quiet: a pass over
	// what is in memory.
	quietPeriod = 2 * time.Second
	// podEventDedupe is how much later a pod must have come or gone to be noted again:
	// Karpenter's value.
	podEventDedupe = 10 * time.Second
)

// quieter notes on claims when pods last came to their node or left it, so that it isn't
// forgotten with a restart, and whether the node has been quiet for its pool's
// consolidateAfter. Disruption itself looks at the state; this is for people, for
// dashboards and for the next controller.
type quieter struct {
	kube  client.Client
	state *cluster.State
	clock clock.Clock
}

// NeedLeaderElection keeps a standby from writing.
func (q *quieter) NeedLeaderElection() bool { return true }

// Start runs until ctx ends.
func (q *quieter) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("quieter")
	for {
		if err := q.pass(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "note how quiet nodes are")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-q.clock.After(quietPeriod):
		}
	}
}

func (q *quieter) pass(ctx context.Context) error {
	var pools karpenter.NodePoolList
	if err := q.kube.List(ctx, &pools); err != nil {
		return fmt.Errorf("list NodePools: %w", err)
	}
	after := map[string]*time.Duration{}
	for i := range pools.Items {
		if p := &pools.Items[i]; !p.IsStatic() {
			after[p.Name] = p.Spec.Disruption.ConsolidateAfter.Duration
		}
	}
	now := q.clock.Now()
	var changed []change
	for claim, moved := range q.state.Moved() {
		if claim.Spec.NodeClassRef == nil || claim.Spec.NodeClassRef.Group != aws.Group {
			continue // another provider's
		}
		if want := quiet(claim, moved, after[claim.Labels[karpenter.LabelNodePool]], now); want != nil {
			changed = append(changed, change{claim, want})
		}
	}
	return errors.Join(kube.Each(len(changed), func(i int) error {
		// The list of conditions is replaced as a whole: with another's write in between
		// the next pass tries again.
		patch := client.MergeFromWithOptions(changed[i].from, client.MergeFromWithOptimisticLock{})
		err := q.kube.Status().Patch(ctx, changed[i].to, patch)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write status of NodeClaim %s: %w", changed[i].to.Name, err)
		}
		return nil
	})...)
}

// change is a claim as it is and as it should be.
type change struct{ from, to *karpenter.NodeClaim }

// quiet returns the claim with what is to be noted on it, nil for nothing. Of a pool
// without consolidation, or of none, after is nil.
func quiet(claim *karpenter.NodeClaim, moved time.Time, after *time.Duration, now time.Time) *karpenter.NodeClaim {
	if claim.DeletionTimestamp != nil || !isTrue(claim, karpenter.ConditionInitialized) {
		return nil
	}
	noted := claim.Status.LastPodEventTime.Time
	if !moved.IsZero() {
		moved = now.Add(-now.Sub(moved)) // by the clock as it goes now, should it have been turned
	}
	wrong := noted.After(now.Add(clockSkew))
	if wrong {
		noted = time.Time{} // by a clock that was fast
	}
	least := podEventDedupe
	if after != nil {
		least = max(least, *after/10)
	}
	if wrong && moved.IsZero() {
		moved = now
	}
	begin := slices.MaxFunc([]time.Time{moved, noted, since(claim, karpenter.ConditionInitialized, now)}, time.Time.Compare)
	note, consolidatable := wrong || moved.Sub(noted) >= least, after != nil && now.Sub(begin) >= *after
	// Of a thousand nodes that rest nothing is to be noted: they aren't copied to see that.
	if !note && says(claim, consolidatable) {
		return nil
	}
	want := claim.DeepCopy()
	if note {
		want.Status.LastPodEventTime = metav1.NewTime(moved.Truncate(time.Second))
	}
	if consolidatable {
		setTrue(want, karpenter.ConditionConsolidatable)
	} else {
		apimeta.RemoveStatusCondition(&want.Status.Conditions, karpenter.ConditionConsolidatable)
	}
	return want
}

// says reports whether the claim's condition Consolidatable is as it should be.
func says(claim *karpenter.NodeClaim, consolidatable bool) bool {
	c := apimeta.FindStatusCondition(claim.Status.Conditions, karpenter.ConditionConsolidatable)
	if !consolidatable {
		return c == nil
	}
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == c.Type && c.Message == "" && c.ObservedGeneration == claim.Generation
}
