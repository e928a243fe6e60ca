package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// replaceMost is how long a drain waits at most for the nodes that its pods are
	// planned onto: what slow images and device drivers take to come up.
	replaceMost = 3 * time.Minute
	// replaceSpot is the same for a spot instance and one of a reservation, whose owner may
	// take it back: it may have been given two minutes. Most nodes take less, and pods keep
	// more than half of the notice.
	replaceSpot = 45 * time.Second
	// planSoon is how long it may take until it is planned where the pods go.
	planSoon = 5 * time.Second
	// turns is how long at most the pods of a node wait for larger ones of others, pollTurn
	// how soon to look again whether these have gone. Deletion timestamps are whole
	// seconds.
	turns    = 4 * time.Second
	pollTurn = 200 * time.Millisecond
	// pollPlaces is how soon to look again whether these places are ready.
	pollPlaces = 500 * time.Millisecond
)

// coming says for what a drain waits before it evicts the first pod, "" for nothing: if
// pods are to go to a node that is on its way, evicting them now would leave them with
// none. Whoever deletes a Node or a NodeClaim, and expiry, thus gets the replacement
// first, as disruption does. It is a favour and no promise: pods that no node can be had
// for don't hold up the drain, a node that is slow does so for minutes, and of a
// termination grace period at most half is used.
func (r *Reconciler) coming(claim *karpenter.NodeClaim, deadline time.Time, bounded bool, now time.Time) string {
	if r.state == nil || isTrue(claim, karpenter.ConditionDisruptionReason) && r.replaced(claim) {
		return ""
	}
	most := replaceMost
	switch claim.Labels[karpenter.LabelCapacityType] {
	case karpenter.CapacityTypeSpot, karpenter.CapacityTypeReserved:
		most = replaceSpot
	}
	began := claim.DeletionTimestamp.Time
	if bounded {
		most = min(most, deadline.Sub(began)/2)
	}
	waited := now.Sub(began)
	if waited >= most {
		return ""
	}
	target, known := r.state.Moving(claim.Name)
	switch {
	case !known && waited < planSoon:
		return "it is being planned where the pods go"
	case target != "":
		return fmt.Sprintf("pods go to %s, which is on its way", target)
	}
	return ""
}

// replaced reports whether disruption has seen to the replacements. While these are on
// their way somebody else may delete the claim.
func (r *Reconciler) replaced(claim *karpenter.NodeClaim) bool {
	d, ok := coppice.DisruptionOf(claim)
	if !ok {
		return true
	}
	for _, name := range d.Replacements {
		if c := r.state.Claim(name); c != nil && !isTrue(c, karpenter.ConditionInitialized) {
			return false
		}
	}
	return true
}

// inTurn leaves those pods that are to be evicted now. Where disruption empties several
// nodes at once, the largest pods leave first, whichever node they are on: the scheduler
// spreads what it binds, so that the small ones would take a little of the room on every
// node and leave none for a large one, which then needs a node of its own.
func (r *Reconciler) inTurn(claim *karpenter.NodeClaim, pods []corev1.Pod, now time.Time) (due []corev1.Pod, wait bool) {
	if r.state == nil || len(pods) == 0 || !isTrue(claim, karpenter.ConditionDisruptionReason) || now.Sub(claim.DeletionTimestamp.Time) >= turns {
		return pods, false
	}
	most := r.state.Bulkiest(turns)
	for _, p := range pods {
		if cluster.Bulk(&p) >= most {
			due = append(due, p)
		}
	}
	return due, len(due) < len(pods)
}
