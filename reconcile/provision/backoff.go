package provision

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// launches is the topic of decisions about when a pool may launch.
const launches = "Launches"

// stages are the reasons of a pool's being held back, by what its claims don't reach.
var stages = [...]struct {
	stage             health.Stage
	condition, reason string
}{
	{health.Launched, karpenter.ConditionLaunched, "LaunchFailed"},
	{health.Registered, karpenter.ConditionRegistered, "RegistrationFailed"},
	{health.Initialized, karpenter.ConditionInitialized, "InitializationFailed"},
}

// backOffText is the condition's message, which backOffMessage writes: how many launches
// failed in a row, when the next may be tried, and what the last one said.
var backOffText = regexp.MustCompile(`^(\d+) in a row came to nothing, the next is not before (\S+): (.*)$`)

func backOffMessage(h health.Hold) string {
	return fmt.Sprintf("%d in a row came to nothing, the next is not before %s: %s", h.Failures, h.Until.UTC().Format(time.RFC3339), h.Why)
}

// backOff says in a condition, and in an event when it is for a new reason, that the pool
// is held back. From the condition a successor knows for how long.
func (r *pools) backOff(pool *karpenter.NodePool, h health.Hold) {
	const condition = karpenter.ConditionLaunchBackOff
	subject := record.Subject{Kind: "NodePool", Name: pool.Name}
	had := apimeta.FindStatusCondition(pool.Status.Conditions, condition)
	if h.Failures == 0 {
		if had != nil {
			apimeta.RemoveStatusCondition(&pool.Status.Conditions, condition)
			r.book.Put(subject, r.clock.Now(), record.Decision{Topic: launches, Verdict: "Open", Message: "a launch works, or the pool was changed: nothing is held back any more"})
		}
		return
	}
	c := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Message: backOffMessage(h), ObservedGeneration: pool.Generation}
	for _, s := range stages {
		if s.stage == h.Stage {
			c.Reason = s.reason
		}
	}
	if had == nil || had.Reason != c.Reason || !strings.HasSuffix(had.Message, ": "+h.Why) {
		r.events.Eventf(pool, nil, corev1.EventTypeWarning, condition, "Launch", "Launches are held back, ever longer until one works: %s", h.Why)
	}
	r.book.Put(subject, r.clock.Now(), record.Decision{
		Topic: launches, Verdict: "HeldBack", Message: fmt.Sprintf("%d in a row failed, the last: %s", h.Failures, h.Why), Until: h.Until,
	})
	apimeta.SetStatusCondition(&pool.Status.Conditions, c)
}

// heldBefore reads from the pool's condition how it was held back before a restart,
// nothing if it has changed since.
func heldBefore(pool *karpenter.NodePool) (h health.Hold) {
	c := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionLaunchBackOff)
	if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != pool.Generation {
		return health.Hold{}
	}
	parts := backOffText.FindStringSubmatch(c.Message)
	if parts == nil {
		return health.Hold{}
	}
	failures, err := strconv.Atoi(parts[1])
	until, badTime := time.Parse(time.RFC3339, parts[2])
	if err != nil || badTime != nil {
		return health.Hold{} // somebody has edited it
	}
	h = health.Hold{Failures: failures, Until: until, Why: parts[3]}
	for _, s := range stages {
		if s.reason == c.Reason {
			h.Stage = s.stage
		}
	}
	return h
}

// awaited returns the claim whose outcome the pool's hold waits for, as far as that shows
// after a restart: the youngest that hasn't come as far yet, "" for none.
func awaited(nodes []cluster.Node, stage health.Stage) string {
	var name string
	var at time.Time
	for _, n := range nodes {
		if n.Claim == nil || n.Deleting() || !n.Claim.CreationTimestamp.After(at) {
			continue
		}
		if reached(n.Claim) < stage {
			name, at = n.Claim.Name, n.Claim.CreationTimestamp.Time
		}
	}
	return name
}

func reached(claim *karpenter.NodeClaim) health.Stage {
	var last health.Stage
	for _, s := range stages {
		if apimeta.IsStatusConditionTrue(claim.Status.Conditions, s.condition) {
			last = s.stage
		}
	}
	return last
}
