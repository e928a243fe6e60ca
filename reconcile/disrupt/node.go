package disrupt

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/consolidate"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// byClaimName indexes the machines that have a claim.
func byClaimName(nodes []cluster.Node) map[string]cluster.Node {
	out := map[string]cluster.Node{}
	for _, n := range nodes {
		if n.Claim != nil {
			out[n.Claim.Name] = n
		}
	}
	return out
}

// vacant reports whether nothing would have to move if the node went.
func vacant(n cluster.Node) bool {
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

// evictionCost is what it costs to move the pods, in thousandths of an ordinary pod:
// one each, more or less by what the pod says of itself and by its priority, as in
// Karpenter.
func evictionCost(pods []*corev1.Pod) int64 {
	var sum int64
	for _, p := range pods {
		if !cluster.Reschedulable(p) {
			continue
		}
		cost := 1.0
		text, ok := p.Annotations[karpenter.AnnotationDisruptionCost]
		if !ok {
			text = p.Annotations[cluster.AnnotationDeletionCost]
		}
		if v, err := strconv.ParseInt(text, 10, 32); err == nil {
			cost += float64(v) / (1 << 27)
		}
		if p.Spec.Priority != nil {
			cost += float64(*p.Spec.Priority) / (1 << 25)
		}
		sum += int64(1000 * min(max(cost, 0), 10))
	}
	return sum
}

// pulse changes when pods or machines come or go.
func pulse(nodes []cluster.Node) uint64 {
	h := fnv.New64a()
	for _, n := range nodes {
		if vacant(n) && (n.Initialized() || n.Deleting()) {
			continue // whether it goes changes nothing for pods
		}
		h.Write([]byte(n.Name()))
		if n.Initialized() {
			h.Write([]byte{1})
		}
		if n.Deleting() {
			h.Write([]byte{2})
		}
		for _, p := range n.Pods {
			if cluster.Reschedulable(p) {
				h.Write([]byte(p.UID))
			}
		}
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// residents counts the pods that would have to move if all nodes went. The population
// stands for which they are, wherever they are.
func residents(nodes []cluster.Node) (movable int, population uint64) {
	for _, n := range nodes {
		for _, p := range n.Pods {
			if cluster.Reschedulable(p) {
				h := fnv.New64a()
				h.Write([]byte(p.UID))
				population += h.Sum64()
				movable++
			}
		}
	}
	return movable, population
}

// refresh is how long a search that found nothing stands although nothing has changed
// that it looked at: prices change. Karpenter's value.
const refresh = 5 * time.Minute

// mark stands for what a search looks at.
func mark(in Input, p consolidate.Problem) uint64 {
	h := fnv.New64a()
	num := func(v uint64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		h.Write(b[:])
	}
	num(pulse(in.Nodes))
	num(uint64(in.Now.Unix() / int64(refresh/time.Second)))
	num(uint64(p.Again))
	for _, n := range p.Nodes {
		h.Write([]byte(n.Name + "\x00"))
	}
	for _, c := range p.Closed {
		h.Write([]byte(c + "\x01"))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Pools)) {
		b := p.Pools[name]
		num(uint64(min(b.Budget, len(p.Nodes))))
		num(uint64(in.Pools[name].Generation))
		h.Write([]byte(name + in.Pools[name].Options.MinSavings))
	}
	return h.Sum64()
}
