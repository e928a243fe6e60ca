package disrupt

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/consolidate"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// policy says for how long a Node's condition may have a status.
type policy struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	tolerate  time.Duration
}

// policies are those of Karpenter for EC2: the kubelet's own condition, and those of
// the EKS node monitoring agent.
func policies() []policy {
	return []policy{
		{corev1.NodeReady, corev1.ConditionFalse, 30 * time.Minute},
		{corev1.NodeReady, corev1.ConditionUnknown, 30 * time.Minute},
		{"AcceleratedHardwareReady", corev1.ConditionFalse, 10 * time.Minute},
		{"StorageReady", corev1.ConditionFalse, 30 * time.Minute},
		{"NetworkingReady", corev1.ConditionFalse, 30 * time.Minute},
		{"KernelReady", corev1.ConditionFalse, 30 * time.Minute},
		{"ContainerRuntimeReady", corev1.ConditionFalse, 30 * time.Minute},
	}
}

const (
	// repairGrace bounds the drain of an unhealthy node: its pods may never leave by
	// themselves. Karpenter's value.
	repairGrace = 10 * time.Minute
	// mostUnhealthy is the share of a pool's nodes, in percent and rounded up, above
	// which none is repaired: the trouble is elsewhere then. Karpenter's value.
	mostUnhealthy = 20
)

// illness says which condition of a Node is the first to run out of tolerance and
// when; ok is false for a healthy one.
func illness(node *corev1.Node) (which corev1.NodeCondition, at time.Time, ok bool) {
	for _, c := range node.Status.Conditions {
		for _, p := range policies() {
			if c.Type != p.condition || c.Status != p.status {
				continue
			}
			if t := c.LastTransitionTime.Add(p.tolerate); !ok || t.Before(at) {
				which, at, ok = c, t, true
			}
		}
	}
	return which, at, ok
}

// repair takes unhealthy nodes away. Their pods are planned for at once; a replacement
// isn't waited for, since they don't run, or not well.
func (d *decider) repair() {
	if !d.in.NodeRepair {
		return
	}
	type sick struct {
		node cluster.Node
		at   time.Time
	}
	var due []sick
	total, ill := map[string]int{}, map[string]int{}
	for _, n := range d.nodes {
		if n.Node == nil {
			continue
		}
		total[n.Pool()]++
		c, at, is := illness(n.Node)
		if is {
			ill[n.Pool()]++
		}
		if !d.free(n) {
			continue
		}
		pool := d.in.Pools[n.Pool()]
		until, paused := pool.Options.PausedUntil(d.in.Now)
		switch {
		case !is:
			d.keep(n, unhealthy, Block{Code: "Healthy", Message: "no condition says that it is ill"})
		case n.Node.Annotations[karpenter.AnnotationDoNotRepair] == "true" || n.Claim.Annotations[karpenter.AnnotationDoNotRepair] == "true":
			d.keep(n, unhealthy, Block{Code: "DoNotRepair", Message: "it has the annotation " + karpenter.AnnotationDoNotRepair})
		case paused:
			d.keep(n, unhealthy, Block{Code: "Paused", Until: until, Message: fmt.Sprintf("NodePool %s is paused by %s: %s", pool.Name, pool.Options.Pause.Author, pool.Options.Pause.Reason)})
		case d.away(n):
			d.keep(n, unhealthy, d.shifted(n))
		case d.in.Now.Before(at):
			d.keep(n, unhealthy, Block{Code: "Tolerated", Until: at, Message: fmt.Sprintf("condition %s is %s, which is tolerated for now", c.Type, c.Status)})
		default:
			due = append(due, sick{n, at})
		}
	}
	slices.SortStableFunc(due, func(a, b sick) int { return cmp.Or(a.at.Compare(b.at)) })
	for _, s := range due {
		pool := s.node.Pool()
		most := (total[pool]*mostUnhealthy + 99) / 100
		switch {
		case ill[pool] > most:
			d.keep(s.node, unhealthy, Block{
				Code:    "TooManyUnhealthy",
				Message: fmt.Sprintf("%d of %d nodes of NodePool %s are unhealthy, more than %d %%: look for a common cause", ill[pool], total[pool], pool, mostUnhealthy),
			})
		case d.Allowed[pool][unhealthy] <= 0:
			d.keep(s.node, unhealthy, d.overBudget(pool, unhealthy))
		default:
			d.trial.Replace(s.node.Name(), nil) // nothing else may count on it
			d.start(unhealthy, []cluster.Node{s.node}, consolidate.Command{})
		}
	}
}
