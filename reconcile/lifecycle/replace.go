package lifecycle

import (
	"fmt"
	"time"

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
