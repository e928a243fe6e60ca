package disrupt

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// proof is whether pods do well on what has taken a drifted machine's place. Until that
// is known no wider wave begins.
type proof struct {
	command Command
	pools   []string
	// frail are owners whose pods failed before, wherever they ran.
	frail map[types.UID]bool
	// began is when the first of the machines began to go, moved when they were gone,
	// zero before.
	began, moved time.Time
	// late says that they take so long to go that the rollout doesn't wait for it.
	late bool
	// good is since when all pods there have been ready, zero while one isn't.
	good time.Time
	// failing is what pods have failed at, until they have been good for a while.
	failing string
}

const (
	// proving is how long pods must have been ready on a new node. A container that
	// fails at its start does so a second time within it: the kubelet waits for ten
	// seconds.
	proving = 30 * time.Second
	// unproven is how long it is waited for pods that don't become ready, but don't fail
	// either, and for a drain. It is the kubelet's longest wait before it starts a failed
	// container again, so that within it each that fails is seen to.
	unproven = 5 * time.Minute
)

// failure says which of a pod's containers doesn't start, or dies ever again, "" for
// none.
func failure(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting == nil {
			continue
		}
		switch reason := c.State.Waiting.Reason; reason {
		case "CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return fmt.Sprintf("container %s of pod %s/%s is in %s", c.Name, p.Namespace, p.Name, reason)
		}
	}
	return ""
}

// owner is what a pod's siblings have in common with it.
func owner(p *corev1.Pod) types.UID {
	if o := metav1.GetControllerOf(p); o != nil {
		return o.UID
	}
	return p.UID
}

// frail returns the owners of pods that fail now on nodes other than fresh ones: what a
// rollout has brought about is no excuse for what it does next.
func frail(nodes []cluster.Node, fresh func(cluster.Node) bool) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, n := range nodes {
		if fresh(n) {
			continue
		}
		for _, p := range n.Pods {
			if failure(p) != "" {
				out[owner(p)] = true
			}
		}
	}
	return out
}

// verdict says whether the question is settled, and which pod fails if one does.
func (p *proof) verdict(byClaim map[string]cluster.Node, now time.Time) (settled bool, why string) {
	pods, ready := 0, true
	for _, name := range p.command.Replacements {
		n, there := byClaim[name]
		if !there || n.Deleting() {
			continue
		}
		for _, pod := range n.Pods {
			if text := failure(pod); text != "" && !p.frail[owner(pod)] {
				p.good = time.Time{}
				return false, fmt.Sprintf("%s on the new Node %s, and wasn't before", text, n.Name())
			}
			if cluster.Reschedulable(pod) {
				pods++
				ready = ready && cluster.PodReady(pod)
			}
		}
	}
	switch {
	case pods > 0 && !ready:
		p.good = time.Time{}
	case p.good.IsZero():
		p.good = now
	}
	kept, leaving := 0, false
	for _, name := range p.command.Claims {
		switch n, there := byClaim[name]; {
		case !there:
		case n.Deleting():
			leaving = true
			if p.began.IsZero() {
				p.began = now
			}
		case p.command.marks(n):
			leaving = true
		default:
			kept++ // given back at the last moment
		}
	}
	if leaving {
		p.late = !p.began.IsZero() && now.Sub(p.began) >= unproven
		return false, ""
	}
	if kept == len(p.command.Claims) {
		return true, ""
	}
	if p.moved.IsZero() {
		p.moved = now
	}
	return pods == 0 || !now.Before(p.due()), ""
}

// due is when time alone settles the question or, while machines are going, makes it
// late; zero if it doesn't.
func (p *proof) due() time.Time {
	switch {
	case p.late && p.moved.IsZero(), p.began.IsZero() && p.moved.IsZero():
		return time.Time{}
	case p.moved.IsZero():
		return p.began.Add(unproven)
	}
	at := p.moved.Add(unproven)
	if p.good.IsZero() {
		return at
	}
	from := p.moved
	if p.good.After(from) {
		from = p.good
	}
	if proven := from.Add(proving); proven.Before(at) {
		return proven
	}
	return at
}

// prove looks at what was replaced last, widens the rollouts of which pods do well, and
// halts those of which they don't until they have been well for a while: a container
// that crashes again and again runs in between.
func (l *loop) prove(byClaim map[string]cluster.Node, pools map[string]Pool) {
	now := l.clock.Now()
	var well []*proof
	l.proofs = slices.DeleteFunc(l.proofs, func(p *proof) bool {
		settled, why := p.verdict(byClaim, now)
		switch {
		case why != "" && p.failing == "":
			p.failing = why
			for _, name := range p.pools {
				l.rollouts[name] = l.rollouts[name].failed(why, now)
				if pool, ok := pools[name]; ok {
					l.events.Eventf(pool.NodePool, nil, corev1.EventTypeWarning, "RolloutHalted", "Disrupt", "No more drifted nodes are replaced: %s", why)
				}
			}
		case p.failing != "":
			// What it proves in the end is that the rollout may be tried again.
			return !p.good.IsZero() && now.Sub(p.good) >= proving
		case settled && !p.moved.IsZero():
			well = append(well, p)
		}
		return settled
	})
	for name, r := range l.rollouts {
		r.Held = false
		for _, p := range l.proofs {
			if p.failing != "" && slices.Contains(p.pools, name) {
				r.Held, r.Why = true, p.failing
				break
			}
		}
		l.rollouts[name] = r
	}
	for _, p := range well {
		for _, name := range p.pools {
			if r := l.rollouts[name]; !r.Held {
				l.rollouts[name] = r.succeeded()
			}
		}
	}
}

// recall finds again what halted rollouts before a restart: replacements whose pods
// fail, in pools that have others to replace.
func (l *loop) recall(nodes []cluster.Node, pools map[string]Pool) {
	now := l.clock.Now()
	if l.began.IsZero() {
		l.began = now
	}
	if now.Sub(l.began) >= unproven {
		return
	}
	rolling := map[string]bool{}
	for _, n := range nodes {
		if n.Claim != nil && !n.Deleting() {
			_, is := outdated(n, pools[n.Pool()], now)
			rolling[n.Pool()] = rolling[n.Pool()] || is
		}
	}
	fresh := replacements(pools, now)
	weak := frail(nodes, fresh)
	for _, n := range nodes {
		if !rolling[n.Pool()] || !fresh(n) || n.Deleting() {
			continue
		}
		known := slices.ContainsFunc(l.proofs, func(p *proof) bool { return slices.Contains(p.command.Replacements, n.Claim.Name) })
		if known || !slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return failure(p) != "" && !weak[owner(p)] }) {
			continue
		}
		c := Command{Disruption: coppice.Disruption{ID: n.Claim.Annotations[coppice.AnnotationReplaces], Reason: drifted, Replacements: []string{n.Claim.Name}}}
		l.proofs = append(l.proofs, &proof{command: c, pools: []string{n.Pool()}, frail: weak})
	}
}

// replacements tells nodes that have come in others' place and are as they should be.
func replacements(pools map[string]Pool, now time.Time) func(cluster.Node) bool {
	return func(n cluster.Node) bool {
		if n.Claim == nil || n.Claim.Annotations[coppice.AnnotationReplaces] == "" {
			return false
		}
		_, is := outdated(n, pools[n.Pool()], now)
		return !is
	}
}

// unsure counts by pool the replacements that have to prove themselves.
func unsure(proofs []*proof) map[string]int {
	out := map[string]int{}
	for _, p := range proofs {
		if p.failing != "" || p.late {
			continue
		}
		for _, name := range p.pools {
			out[name] += len(p.command.Claims)
		}
	}
	return out
}
