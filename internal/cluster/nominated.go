package cluster

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coppice-dev/coppice/internal/pack"
)

// Patience is how long a pod may be nominated to a Node that is ready for it and not be
// bound. The scheduler tries a pod again after 10 s at the latest, its longest back-off,
// if anything has changed; if nothing has, it doesn't for five minutes.
const Patience = 15 * time.Second

// lapsed reports whether a pod's nomination has come to nothing: others have the room. A
// pod that waits until those that it has preempted are gone keeps its place.
func (s *State) lapsed(p *corev1.Pod) bool {
	since, ok := s.since[key(p)]
	n := s.nodes[p.Status.NominatedNodeName]
	if !ok || n == nil || p.Spec.NodeName != "" {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	if s.clock.Since(since) < Patience {
		return false
	}
	if m, known := s.named(n.Name); !known || !m.Initialized() || !Ready(n) {
		return false
	}
	for _, other := range s.bound[n.Name] {
		if other.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// Lapse has pods looked at again whose nomination has come to nothing, and reports whether
// any pod is nominated and not bound, so that it is to be called again.
func (s *State) Lapse() (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pods := range s.expected {
		for k := range pods {
			some = true
			if s.lapsed(s.pods[k]) {
				s.touchPod(k)
			}
		}
	}
	return some
}

// Expected returns the pods that are planned onto a NodeClaim's node and not bound yet,
// nor nominated to any Node, as far as there is still room for them. They are shared and
// read-only.
func (s *State) Expected(claim string) []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claim]
	names, node := s.onto[claim], ""
	if c != nil {
		node = s.nodeOf[c.Status.ProviderID]
	}
	if node != "" {
		names = append(slices.Clip(names), s.onto[node]...)
	}
	var out []*corev1.Pod
	var free pack.Resources
	for _, name := range names {
		p := s.pods[podName(name)]
		if p == nil || !s.provisionable(p) {
			continue
		}
		if free == nil && node != "" {
			free = s.free(node)
		}
		wants := requests(p)
		if node != "" {
			if !fits(wants, free) {
				continue
			}
			take(free, wants)
		}
		out = append(out, p)
	}
	return out
}

// free is what pods that are bound to a Node or nominated to it leave of it.
func (s *State) free(node string) pack.Resources {
	m, _ := s.named(node)
	free := Resources(m.Allocatable())
	for _, p := range s.bound[node] {
		take(free, requests(p))
	}
	for k := range s.expected[node] {
		if p := s.pods[k]; !s.lapsed(p) {
			take(free, requests(p))
		}
	}
	return free
}

// requests are a pod's, itself included.
func requests(p *corev1.Pod) pack.Resources {
	out := Resources(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
	out[pack.Pods] = 1
	return out
}

func fits(wants, free pack.Resources) bool {
	for name, n := range wants {
		if n > 0 && n > free[name] {
			return false
		}
	}
	return true
}

func take(free, wants pack.Resources) {
	for name, n := range wants {
		free[name] -= n
	}
}
