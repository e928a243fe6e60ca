package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// stuck is how long past its grace period a pod may go on terminating before the
// drain stops waiting for it: its kubelet isn't going to finish it.
const stuck = time.Minute

// drainStep is what to do about a Node's pods now.
type drainStep struct {
	Evict  []corev1.Pod
	Delete []corev1.Pod
	// Protected are the pods whose turn it is but that forbid their disruption.
	Protected []corev1.Pod
	// Waiting counts the pods that have yet to leave, whatever their group.
	Waiting int
	// Due is when the first of them has to be deleted to keep the deadline, zero if
	// none has.
	Due time.Time
}

// nextDrain says which pods of a Node are due. Pods leave in four groups, each
// after the one before is gone: ordinary pods, ordinary daemons, critical pods,
// critical daemons, so that what others depend on goes last. A pod that forbids
// disruption is waited for. With a deadline every pod is deleted in time to have
// its whole grace period before it.
func nextDrain(pods []corev1.Pod, now, deadline time.Time, bounded bool) drainStep {
	var step drainStep
	var groups [4][]corev1.Pod
	for _, p := range pods {
		if !cluster.Drainable(&p) || stuckTerminating(&p, now) {
			continue
		}
		step.Waiting++
		if bounded {
			due := lastCall(&p, deadline)
			if !now.Before(due) {
				step.Delete = append(step.Delete, p)
				continue
			}
			if step.Due.IsZero() || due.Before(step.Due) {
				step.Due = due
			}
		}
		groups[group(&p)] = append(groups[group(&p)], p)
	}
	for _, g := range groups {
		if len(g) == 0 {
			continue
		}
		for _, p := range g {
			switch {
			case p.DeletionTimestamp != nil:
			case cluster.DoNotDisrupt(&p, now):
				step.Protected = append(step.Protected, p)
			default:
				step.Evict = append(step.Evict, p)
			}
		}
		break
	}
	byName := func(a, b corev1.Pod) int { return strings.Compare(podName(&a), podName(&b)) }
	slices.SortFunc(step.Evict, byName)
	slices.SortFunc(step.Delete, byName)
	return step
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// namedPods is how many of the pods that hold up a drain are named: the rest of a
// line is for their reasons.
const namedPods = 3

// waits says what holds up a drain, "" for nothing: how many pods are left, and the
// first few that don't leave by themselves with what keeps them.
func waits(waiting int, blocked map[string]string) string {
	if len(blocked) == 0 {
		return ""
	}
	text := fmt.Sprintf("waits for %d pods", waiting)
	if waiting == 1 {
		text = "waits for 1 pod"
	}
	for i, name := range slices.Sorted(maps.Keys(blocked)) {
		if i == namedPods {
			return kube.OneLine(fmt.Sprintf("%s; and %d more that don't leave", text, len(blocked)-i))
		}
		text += fmt.Sprintf("; %s is kept by %s", name, blocked[name])
	}
	return kube.OneLine(text)
}

func group(p *corev1.Pod) int {
	g := 0
	if cluster.OwnedByDaemonSet(p) {
		g++
	}
	if cluster.Critical(p) {
		g += 2
	}
	return g
}

func stuckTerminating(p *corev1.Pod, now time.Time) bool {
	// The deletion timestamp already includes the grace period.
	return p.DeletionTimestamp != nil && now.Sub(p.DeletionTimestamp.Time) > stuck
}

// lastCall is when the pod has to be deleted to be gone by the deadline. One that goes by
// itself in time never has to.
func lastCall(p *corev1.Pod, deadline time.Time) time.Time {
	if p.DeletionTimestamp != nil {
		if p.DeletionTimestamp.Time.After(deadline) {
			return time.Time{}
		}
		return deadline.Add(stuck)
	}
	grace := 30 * time.Second // the API server's default
	if p.Spec.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return deadline.Add(-grace)
}

// termination is the time by which the claim's Node must be gone, if it is bounded:
// what an annotation says, or the deletion plus the grace period.
func termination(claim *karpenter.NodeClaim) (at time.Time, bounded bool, err error) {
	if at, ok, err := claim.TerminationDeadline(); ok || err != nil {
		return at, ok, err
	}
	if claim.Spec.TerminationGracePeriod == nil || claim.DeletionTimestamp == nil {
		return time.Time{}, false, nil
	}
	return claim.DeletionTimestamp.Add(claim.Spec.TerminationGracePeriod.Duration), true, nil
}
