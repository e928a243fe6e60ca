package pack

import (
	"slices"
	"strings"
)

// Node returns a node as it was set.
func (s *State) Node(name string) (Node, bool) {
	slot, ok := s.nodeSlots[name]
	if !ok {
		return Node{}, false
	}
	return s.nodes[slot].Node, true
}

// PodsOn returns the pods of a node as they were set, sorted by name, other than
// those of daemons.
func (s *State) PodsOn(node string) []Pod {
	slot, ok := s.nodeSlots[node]
	if !ok {
		return nil
	}
	var out []Pod
	for p := s.nodes[slot].head; p >= 0; p = s.pods[p].next {
		if !s.pods[p].daemon {
			out = append(out, s.podAt(p))
		}
	}
	slices.SortFunc(out, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Pending returns the pods that want a node, sorted by name.
func (s *State) Pending() []Pod {
	var out []Pod
	for _, p := range s.pending {
		out = append(out, s.podAt(p))
	}
	slices.SortFunc(out, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}
