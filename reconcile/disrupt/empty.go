package disrupt

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// emptyNodes returns the nodes that may go now because nothing has run on them for
// their pool's consolidateAfter, within its budgets, and when to look again at the
// earliest (0 for when something changes).
func emptyNodes(s cluster.Snapshot, pools map[string]*karpenter.NodePool, now time.Time) (gone []cluster.Node, next time.Duration, errs map[string]error) {
	errs = map[string]error{}
	left := map[string]int{}
	for name, p := range pools {
		n, err := headroom(s, p, karpenter.DisruptionReasonEmpty, now)
		if err != nil {
			errs[name] = err
		}
		left[name] = n
	}
	later := func(d time.Duration) {
		if next == 0 || d < next {
			next = d
		}
	}
	for _, n := range s.Nodes {
		pool := pools[n.Pool()]
		if pool == nil || pool.IsStatic() || !candidate(n, now) || !empty(n) {
			continue
		}
		wait := pool.Spec.Disruption.ConsolidateAfter
		if wait.IsNever() {
			continue
		}
		if d := quietSince(n).Add(*wait.Duration).Sub(now); d > 0 {
			later(d)
			continue
		}
		if left[pool.Name] <= 0 {
			later(budgetPoll)
			continue
		}
		left[pool.Name]--
		gone = append(gone, n)
	}
	return gone, next, errs
}

// budgetPoll is how soon to look again at nodes that only a budget keeps: schedules
// open by the minute, and nodes on their way out finish in tens of seconds.
const budgetPoll = 5 * time.Second

// headroom is how many more of a pool's nodes may go for a reason: what its budgets
// allow, less the nodes that are on their way out or not ready, which are down
// already.
func headroom(s cluster.Snapshot, pool *karpenter.NodePool, reason karpenter.DisruptionReason, now time.Time) (int, error) {
	total, down := 0, 0
	for _, n := range s.Nodes {
		if n.Pool() != pool.Name || !n.Initialized() {
			continue
		}
		total++
		if n.Deleting() || !ready(n.Node) {
			down++
		}
	}
	allowed, err := Allowed(pool.Spec.Disruption.Budgets, reason, total, now)
	return allowed - down, err
}

// candidate reports whether a node may be disrupted voluntarily at all.
func candidate(n cluster.Node, now time.Time) bool {
	if n.Claim == nil || !n.Initialized() || n.Deleting() || now.Before(n.NominatedUntil) {
		return false
	}
	if n.Claim.Annotations[karpenter.AnnotationDoNotDisrupt] == "true" || n.Node.Annotations[karpenter.AnnotationDoNotDisrupt] == "true" {
		return false
	}
	return !slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return cluster.DoNotDisrupt(p, now) })
}

// empty reports whether nothing would have to move if the node went.
func empty(n cluster.Node) bool {
	return !slices.ContainsFunc(n.Pods, cluster.Reschedulable)
}

// quietSince is when the node last had a pod come or go, or became ready for pods.
func quietSince(n cluster.Node) time.Time {
	since := n.Claim.CreationTimestamp.Time
	if c := apimeta.FindStatusCondition(n.Claim.Status.Conditions, karpenter.ConditionInitialized); c != nil {
		since = c.LastTransitionTime.Time
	}
	for _, t := range []time.Time{n.Moved, n.Claim.Status.LastPodEventTime.Time} {
		if t.After(since) {
			since = t
		}
	}
	return since
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
