package disrupt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/consolidate"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
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
	// recovery is how long a rebooted node has to become healthy: EC2 resets an instance
	// that doesn't shut down within a few minutes, and a boot with slow checks of volumes
	// and devices takes a few more.
	recovery = 10 * time.Minute
)

// illness says which condition of a node is the first to run out of tolerance and
// when; ok is false for a healthy one. What is bad at the end of a reboot's time, or has
// been since before it, isn't tolerated for longer.
func illness(n cluster.Node, o sugar.Options) (which corev1.NodeCondition, at time.Time, ok bool) {
	rebooted, was := rebootedAt(n.Claim)
	for _, c := range n.Node.Status.Conditions {
		for _, p := range policies() {
			if c.Type != p.condition || c.Status != p.status {
				continue
			}
			t := c.LastTransitionTime.Add(o.Tolerated(string(c.Type), p.tolerate))
			if end := rebooted.Add(recovery); was && c.LastTransitionTime.Time.Before(end) {
				t = end
			}
			if !ok || t.Before(at) {
				which, at, ok = c, t, true
			}
		}
	}
	return which, at, ok
}

// rebootedAt is when a claim's instance was rebooted. An annotation that can't be read
// stands for long ago: that there is one rules out another reboot.
func rebootedAt(claim *karpenter.NodeClaim) (at time.Time, ok bool) {
	text, ok := claim.Annotations[coppice.AnnotationRebooted]
	if !ok {
		return time.Time{}, false
	}
	at, _ = time.Parse(time.RFC3339, text)
	return at, true
}

// recovering reports whether a node is rebooted now, or was a moment ago and is ill still.
func (d *decider) recovering(n cluster.Node) bool {
	if slices.Contains(d.Reboot, n.Claim.Name) {
		return true
	}
	at, was := rebootedAt(n.Claim)
	if !was || n.Node == nil || !d.in.Now.Before(at.Add(recovery)) {
		return false
	}
	_, _, ill := illness(n, d.in.Pools[n.Pool()].Options)
	return ill
}

// rebooted is what keeps a node that is recovering.
func (d *decider) rebooted(n cluster.Node) Block {
	at, was := rebootedAt(n.Claim)
	if !was {
		at = d.in.Now
	}
	return Block{Code: codeRebooted, Until: at.Add(recovery), Message: fmt.Sprintf("its instance was rebooted at %s; it is replaced unless that cures it", at.UTC().Format(time.RFC3339))}
}

// repair takes unhealthy nodes away, or has them rebooted first where their pool wants
// that. Their pods are planned for at once; a replacement isn't waited for, since they
// don't run, or not well.
func (d *decider) repair() {
	if !d.in.NodeRepair {
		d.unrepaired()
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
		c, at, is := illness(n, d.in.Pools[n.Pool()].Options)
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
		case d.recovering(n):
			d.keep(n, unhealthy, d.rebooted(n))
		case d.in.Now.Before(at):
			d.keep(n, unhealthy, Block{Code: "Tolerated", Until: at, Message: fmt.Sprintf("condition %s is %s, which is tolerated for now", c.Type, c.Status)})
		default:
			due = append(due, sick{n, at})
		}
	}
	slices.SortStableFunc(due, func(a, b sick) int { return cmp.Or(a.at.Compare(b.at)) })
	for _, s := range due {
		pool := s.node.Pool()
		_, rebooted := rebootedAt(s.node.Claim)
		most := (total[pool]*mostUnhealthy + 99) / 100
		switch {
		case ill[pool] > most:
			d.keep(s.node, unhealthy, Block{
				Code:    "TooManyUnhealthy",
				Message: fmt.Sprintf("%d of %d nodes of NodePool %s are unhealthy, more than %d %%: look for a common cause", ill[pool], total[pool], pool, mostUnhealthy),
			})
		case d.Allowed[pool][unhealthy] <= 0:
			d.keep(s.node, unhealthy, d.overBudget(pool, unhealthy))
		case d.in.Pools[pool].Options.Rebooting() && !rebooted:
			d.Reboot = append(d.Reboot, s.node.Claim.Name)
			d.take(s.node)
			d.keep(s.node, unhealthy, d.rebooted(s.node))
		default:
			d.trial.Replace(s.node.Name(), nil) // nothing else may count on it
			d.start(unhealthy, []cluster.Node{s.node}, consolidate.Command{})
		}
	}
}

// unrepaired says of nodes that would be repaired why they aren't where nodes never are.
func (d *decider) unrepaired() {
	for _, n := range d.nodes {
		if n.Node == nil || !d.free(n) {
			continue
		}
		if c, at, is := illness(n, d.in.Pools[n.Pool()].Options); is && !d.in.Now.Before(at) {
			d.keep(n, unhealthy, Block{Code: codeRepairOff, Message: fmt.Sprintf("condition %s is %s, but %s", c.Type, c.Status, repairOff)})
		}
	}
}

// repairOff is why nothing is repaired.
const repairOff = "the controller runs without --feature-gates=NodeRepair=true"

// warn tells of each pool that wants its nodes repaired, once, where they aren't.
func (l *loop) warn(pools map[string]Pool) {
	if l.gates.NodeRepair {
		return
	}
	warned := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if pools[name].Options.Repair == nil {
			continue
		}
		if warned[name] = true; !l.warned[name] {
			l.events.Eventf(pools[name].NodePool, nil, corev1.EventTypeWarning, codeRepairOff, "Repair", "The pool says how its nodes are to be repaired, but %s", repairOff)
		}
	}
	l.warned = warned
}

// reboot restarts the instances of claims, each once in the claim's life: what says so is
// written before the cloud is asked, by a write that fails on a claim that isn't the
// newest. A reboot that fails isn't tried again; the node is replaced when its time is up.
func (l *loop) reboot(ctx context.Context, claims []string, byClaim map[string]cluster.Node) error {
	var errs []error
	for _, name := range claims {
		n := byClaim[name]
		want := n.Claim.DeepCopy()
		if want.Annotations == nil {
			want.Annotations = map[string]string{}
		}
		want.Annotations[coppice.AnnotationRebooted] = l.clock.Now().UTC().Format(time.RFC3339)
		if err := l.kube.Patch(ctx, want, client.MergeFromWithOptions(n.Claim, client.MergeFromWithOptimisticLock{})); err != nil {
			errs = append(errs, fmt.Errorf("mark NodeClaim %s as rebooted: %w", name, err))
			continue
		}
		l.state.SetClaim(want.DeepCopy())
		if err := l.cloud.Reboot(ctx, want.InstanceID()); err != nil {
			l.events.Eventf(want, n.Node, corev1.EventTypeWarning, "RebootFailed", "Repair", "The unhealthy node is replaced in %s unless it recovers: %s", recovery, kube.OneLine(err.Error()))
			errs = append(errs, err)
			continue
		}
		l.metrics.rebooted.WithLabelValues(n.Pool()).Inc()
		l.events.Eventf(want, n.Node, corev1.EventTypeWarning, "Rebooting", "Repair", "Instance %s is rebooted; the node is replaced if it isn't healthy in %s", want.InstanceID(), recovery)
	}
	return errors.Join(errs...)
}
