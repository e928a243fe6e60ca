package disrupt

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cluster"
)

// proof is whether pods do well on what has taken a drifted machine's place. Until that
// is known no wider wave begins.
type proof struct {
	command Command
	pools   []string
	// frail are owners whose pods failed before, wherever they ran.
	frail map[types.UID]bool
	// moved is when the machines that went were gone, zero before.
	moved time.Time
	// failing says that pods have failed, and fail still.
	failing bool
}

const (
	// proving is how long pods must have been ready on a new node. A container that
	// fails at its start does so a second time within it: the kubelet waits for ten
	// seconds.
	proving = 30 * time.Second
	// unproven is how long it is waited for pods that don't become ready, but don't fail
	// either.
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

// frail returns the owners of pods that fail now.
func frail(nodes []cluster.Node) map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, n := range nodes {
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
				return false, fmt.Sprintf("%s on the new Node %s, and wasn't before", text, n.Name())
			}
			if cluster.Reschedulable(pod) {
				pods++
				ready = ready && podReady(pod)
			}
		}
	}
	kept := 0
	for _, name := range p.command.Claims {
		switch n, there := byClaim[name]; {
		case !there:
		case n.Deleting() || p.command.marks(n):
			return false, ""
		default:
			kept++ // given back at the last moment
		}
	}
	if kept == len(p.command.Claims) {
		return true, ""
	}
	if p.moved.IsZero() {
		p.moved = now
	}
	since := now.Sub(p.moved)
	return pods == 0 || ready && since >= proving || since >= unproven, ""
}

// prove looks at what was replaced last, widens the rollouts of which pods do well, and
// halts those of which they don't for as long as that lasts.
func (l *loop) prove(byClaim map[string]cluster.Node, pools map[string]Pool) {
	now := l.clock.Now()
	l.proofs = slices.DeleteFunc(l.proofs, func(p *proof) bool {
		settled, why := p.verdict(byClaim, now)
		switch {
		case why != "" && !p.failing:
			p.failing = true
			for _, name := range p.pools {
				r := l.rollouts[name].failed(why, now)
				r.Held = true
				l.rollouts[name] = r
				if pool, ok := pools[name]; ok {
					l.events.Eventf(pool.NodePool, nil, corev1.EventTypeWarning, "RolloutHalted", "Disrupt", "No more drifted nodes are replaced: %s", why)
				}
			}
		case why == "" && p.failing:
			for _, name := range p.pools {
				r := l.rollouts[name]
				r.Held = false
				l.rollouts[name] = r
			}
			return true // what it proves is that the rollout may be tried again
		case settled && p.moved.IsZero():
			return true // nothing has moved
		case settled:
			for _, name := range p.pools {
				if r := l.rollouts[name]; !r.Held {
					l.rollouts[name] = r.succeeded()
				}
			}
			return true
		}
		return false
	})
}

// unsure counts by pool the replacements that have to prove themselves.
func unsure(proofs []*proof) map[string]int {
	out := map[string]int{}
	for _, p := range proofs {
		if p.failing {
			continue
		}
		for _, name := range p.pools {
			out[name] += len(p.command.Claims)
		}
	}
	return out
}
