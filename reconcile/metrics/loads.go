package metrics

import (
	"hash/maphash"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coppice-dev/coppice/internal/cluster"
)

// load is what a node's pods add up to, daemons apart.
type load struct {
	pods, daemons, podLimits, daemonLimits corev1.ResourceList
	// of says which pods these were, in which version.
	of uint64
}

// loads keeps what the pods of nodes add up to from one reading to the next: of nodes at
// rest, nearly all, it is the same, and summing up 20,000 pods takes more time and memory
// than all else that a reading does. The zero value is ready.
type loads struct {
	mu    sync.Mutex
	last  map[string]load // by Node name
	seed  maphash.Seed
	begun bool
}

// reading is one pass over all nodes. What it doesn't ask for is forgotten.
type reading struct {
	*loads
	now map[string]load
}

// begin keeps others out until the reading ends.
func (l *loads) begin() *reading {
	l.mu.Lock()
	if !l.begun {
		l.begun, l.seed = true, maphash.MakeSeed()
	}
	return &reading{l, make(map[string]load, len(l.last))}
}

func (r *reading) end() {
	r.last = r.now
	r.mu.Unlock()
}

// of returns what the pods of n add up to.
func (r *reading) of(n cluster.Node) load {
	var h maphash.Hash
	h.SetSeed(r.seed)
	for _, p := range n.Pods {
		// Errors are impossible, as documented.
		_, _ = h.WriteString(string(p.UID))
		_, _ = h.WriteString(p.ResourceVersion)
		_ = h.WriteByte(0)
	}
	x, known := r.last[n.Node.Name]
	if of := h.Sum64(); !known || x.of != of {
		x = sum(n.Pods)
		x.of = of
	}
	r.now[n.Node.Name] = x
	return x
}

func sum(pods []*corev1.Pod) load {
	x := load{pods: corev1.ResourceList{}, daemons: corev1.ResourceList{}, podLimits: corev1.ResourceList{}, daemonLimits: corev1.ResourceList{}}
	for _, p := range pods {
		requests, limits := x.pods, x.podLimits
		if cluster.OwnedByDaemonSet(p) {
			requests, limits = x.daemons, x.daemonLimits
		}
		add(requests, resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
		add(limits, resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
	}
	return x
}
