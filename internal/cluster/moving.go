package cluster

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SetPlan tells where pods are planned to go, by PodKey: a Node or a NodeClaim. The
// planner calls it after each of its plans, which was made with m.
func (s *State) SetPlan(m *Model, places map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places, s.planned = maps.Clone(places), m.at
	s.onto = map[string][]string{}
	for _, pod := range slices.Sorted(maps.Keys(places)) {
		s.onto[places[pod]] = append(s.onto[places[pod]], pod)
	}
}

// Places is how many pods the plan has a place for.
func (s *State) Places() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.places)
}

// Moving says where the pods of a NodeClaim's node, which is on its way out, are to go:
// target is a machine among these that isn't ready for pods yet, "" if all are. It isn't
// known as long as no plan was made since the claim began to go.
func (s *State) Moving(claim string) (target string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planned <= s.went[claim] {
		return "", false
	}
	c := s.claims[claim]
	if c == nil {
		return "", true
	}
	for _, p := range s.podsOn(s.nodeOf[c.Status.ProviderID]) {
		to, ok := s.places[PodKey(p)]
		if !ok {
			continue
		}
		if n, there := s.named(to); there && !n.Initialized() && !n.Deleting() {
			return to, true
		}
	}
	return "", true
}

// named returns the machine that has a name, as its claim or as its Node.
func (s *State) named(name string) (Node, bool) {
	if s.claims[name] != nil {
		return s.machine(claimKey(name))
	}
	if n := s.nodes[name]; n != nil && s.claimOf[n.Spec.ProviderID] != "" {
		return s.machine(claimKey(s.claimOf[n.Spec.ProviderID]))
	}
	return s.machine(nodeKey(name))
}

// held reports whether a pod on a machine that is to go can't be evicted as long as
// nobody changes something: it forbids its disruption, or a PodDisruptionBudget never
// allows one. It stays where it is, so that a node opened for it would stand empty.
func (s *State) held(p *corev1.Pod, now time.Time) bool {
	return p.DeletionTimestamp == nil && (DoNotDisrupt(p, now) || s.blocked(p))
}

// blocked reports whether a PodDisruptionBudget covers the pod that allows no disruption
// whatever happens.
func (s *State) blocked(p *corev1.Pod) bool {
	for k, b := range s.budgets {
		if k.Namespace != p.Namespace || !never(b) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		sick := b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow && !PodReady(p)
		if !sick {
			return true
		}
	}
	return false
}

// never reports whether the budget allows no disruption however many pods are healthy.
func never(b *policyv1.PodDisruptionBudget) bool {
	if most := b.Spec.MaxUnavailable; most != nil {
		return most.String() == "0" || most.String() == "0%"
	}
	least := b.Spec.MinAvailable
	return least != nil && least.String() == "100%"
}
