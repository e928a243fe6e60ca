package lifecycle

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// registrationTimeout is how long a launched instance may take to become a Node
// before it is given up: Karpenter's value, which is known to suit EC2.
const registrationTimeout = 15 * time.Minute

// expiry is when the claim reaches its expireAfter, if ever.
func expiry(c *karpenter.NodeClaim) (time.Time, bool) {
	if c.Spec.ExpireAfter.Duration == nil {
		return time.Time{}, false
	}
	return c.CreationTimestamp.Add(*c.Spec.ExpireAfter.Duration), true
}

func set(c *karpenter.NodeClaim, condition string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, Message: message, ObservedGeneration: c.Generation,
	})
}

func setTrue(c *karpenter.NodeClaim, condition string) {
	set(c, condition, metav1.ConditionTrue, condition, "")
}

func isTrue(c *karpenter.NodeClaim, condition string) bool {
	return apimeta.IsStatusConditionTrue(c.Status.Conditions, condition)
}

// since is when a condition took its present status, or now if it isn't there yet.
func since(c *karpenter.NodeClaim, condition string, now time.Time) time.Time {
	if got := apimeta.FindStatusCondition(c.Status.Conditions, condition); got != nil {
		return got.LastTransitionTime.Time
	}
	return now
}

// setReady derives Ready from the three steps that lead to it.
func setReady(c *karpenter.NodeClaim) {
	for _, step := range []string{karpenter.ConditionLaunched, karpenter.ConditionRegistered, karpenter.ConditionInitialized} {
		got := apimeta.FindStatusCondition(c.Status.Conditions, step)
		if got == nil {
			set(c, karpenter.ConditionReady, metav1.ConditionUnknown, "ReconcilingDependents", step+" is not known yet")
			return
		}
		if got.Status != metav1.ConditionTrue {
			set(c, karpenter.ConditionReady, got.Status, got.Reason, got.Message)
			return
		}
	}
	setTrue(c, karpenter.ConditionReady)
}
