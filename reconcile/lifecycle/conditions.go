package lifecycle

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Timeouts bound how long a claim may take for each step before it is given up and
// its pods are planned for anew. Zero waits for ever.
type Timeouts struct {
	// Launch is from the claim's creation to its instance's launch.
	Launch time.Duration
	// Registration is from the launch until a Node has joined.
	Registration time.Duration
	// Initialization is from then until the Node is ready for pods: its kubelet
	// ready, its startup taints removed, its devices there.
	Initialization time.Duration
}

// DefaultTimeouts are Karpenter's, which are known to suit EC2, and half an hour
// for initialization, which Karpenter doesn't bound: slow device drivers take ten
// minutes.
var DefaultTimeouts = Timeouts{Launch: 5 * time.Minute, Registration: 15 * time.Minute, Initialization: 30 * time.Minute}

// overdue says which step a living claim has taken too long for, "" for none, and
// how long until the next deadline, 0 for none.
func (t Timeouts) overdue(c *karpenter.NodeClaim, now time.Time) (step string, next time.Duration) {
	var began time.Time
	var limit time.Duration
	switch {
	case !isTrue(c, karpenter.ConditionLaunched):
		step, began, limit = karpenter.ConditionLaunched, c.CreationTimestamp.Time, t.Launch
	case !isTrue(c, karpenter.ConditionRegistered):
		step, began, limit = karpenter.ConditionRegistered, since(c, karpenter.ConditionLaunched, now), t.Registration
	case !isTrue(c, karpenter.ConditionInitialized):
		step, began, limit = karpenter.ConditionInitialized, since(c, karpenter.ConditionRegistered, now), t.Initialization
	}
	if limit == 0 {
		return "", 0
	}
	if left := limit - now.Sub(began); left > 0 {
		return "", left
	}
	return step, 0
}

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

// clockSkew is how much later than our own clock another's may be.
const clockSkew = 5 * time.Second

// stamp gives conditions that have another status than before the time of our clock, and
// those that are dated later than now the present. These were written by a clock that was
// fast and has been set right since; what waits for some time after them would wait for as
// long as it was fast.
func stamp(before, after []metav1.Condition, now time.Time) {
	for i := range after {
		c := &after[i]
		had := apimeta.FindStatusCondition(before, c.Type)
		if had == nil || had.Status != c.Status || c.LastTransitionTime.After(now.Add(clockSkew)) {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
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
