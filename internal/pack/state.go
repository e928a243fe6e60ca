package pack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Solve plans once. Callers that solve again after a change keep a State.
func Solve(p Problem, o Options) (*Plan, error) {
	s, err := NewState(p)
	if err != nil {
		return nil, err
	}
	return s.Solve(o), nil
}

// State is a problem that changes. It is not safe for concurrent use.
type State struct {
	pools     []Pool
	daemons   []Daemon
	limits    Resources
	wellKnown []string
	nodes     map[string]Node
	pods      map[string]Pod
}

// NewState takes a problem. It refuses duplicate names and what is missing its
// spec; the problem's slices of types and its pod specs are kept.
func NewState(p Problem) (*State, error) {
	s := &State{nodes: map[string]Node{}, pods: map[string]Pod{}}
	if err := s.SetPools(p.Pools, p.Limits, p.WellKnown); err != nil {
		return nil, err
	}
	if err := s.SetDaemons(p.Daemons); err != nil {
		return nil, err
	}
	for _, n := range p.Nodes {
		if _, ok := s.nodes[n.Name]; ok {
			return nil, fmt.Errorf("node %q is listed twice", n.Name)
		}
		s.SetNode(n)
	}
	for _, pod := range p.Pods {
		if _, ok := s.pods[pod.Name]; ok {
			return nil, fmt.Errorf("pod %q is listed twice", pod.Name)
		}
		if err := s.SetPod(pod); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// SetPools replaces all pools with their types, the limit over all of them and
// the well-known label keys.
func (s *State) SetPools(pools []Pool, limits Resources, wellKnown []string) error {
	seen := map[string]bool{}
	for _, p := range pools {
		if seen[p.Name] {
			return fmt.Errorf("pool %q is listed twice", p.Name)
		}
		seen[p.Name] = true
	}
	s.pools, s.limits, s.wellKnown = slices.Clone(pools), limits, slices.Clone(wellKnown)
	return nil
}

// SetDaemons replaces all daemons.
func (s *State) SetDaemons(daemons []Daemon) error {
	seen := map[string]bool{}
	for _, d := range daemons {
		if seen[d.Name] {
			return fmt.Errorf("daemon %q is listed twice", d.Name)
		}
		if d.Spec == nil {
			return fmt.Errorf("daemon %q has no spec", d.Name)
		}
		seen[d.Name] = true
	}
	s.daemons = slices.Clone(daemons)
	return nil
}

// SetNode adds a node or replaces the one of that name. Its pods stay.
func (s *State) SetNode(n Node) { s.nodes[n.Name] = n }

// RemoveNode forgets a node. Its pods stay known and count nowhere until they
// are set again or the node is.
func (s *State) RemoveNode(name string) { delete(s.nodes, name) }

// SetPod adds a pod or replaces the one of that name.
func (s *State) SetPod(p Pod) error {
	if p.Spec == nil {
		return fmt.Errorf("pod %q has no spec", p.Name)
	}
	s.pods[p.Name] = p
	return nil
}

// RemovePod forgets a pod.
func (s *State) RemovePod(name string) { delete(s.pods, name) }

// Solve plans for the pending pods. It changes nothing: ask again after telling
// the state what was done about the plan.
func (s *State) Solve(o Options) *Plan { return s.WhatIf(Change{}, o) }

// Change is a difference from a state to ask about.
type Change struct {
	// Without names nodes that are gone; their pods, other than those of daemons,
	// are pending.
	Without []string
	// Closed names nodes that take no further pods.
	Closed []string
	// Pools replaces pools of the same name, as with other requirements, prices
	// or limits.
	Pools []Pool
	// Pods are pending pods in addition.
	Pods []Pod
	// OnlyMoved leaves out the pods that are pending in the state itself.
	OnlyMoved bool
}

// WhatIf plans as if the change had been made. The state stays as it is.
func (s *State) WhatIf(c Change, o Options) *Plan {
	p := Problem{Daemons: s.daemons, Limits: s.limits, WellKnown: s.wellKnown, Pools: slices.Clone(s.pools)}
	for _, pool := range c.Pools {
		if i := slices.IndexFunc(p.Pools, func(q Pool) bool { return q.Name == pool.Name }); i >= 0 {
			p.Pools[i] = pool
		} else {
			p.Pools = append(p.Pools, pool)
		}
	}
	gone, closed := map[string]bool{}, map[string]bool{}
	for _, name := range c.Without {
		gone[name] = true
	}
	for _, name := range c.Closed {
		closed[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		n.Closed = n.Closed || closed[name]
		if !gone[name] {
			p.Nodes = append(p.Nodes, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[name]
		switch {
		case pod.Node == "" && c.OnlyMoved, gone[pod.Node] && pod.Daemon:
			continue
		case gone[pod.Node]:
			pod.Node = ""
		}
		p.Pods = append(p.Pods, pod)
	}
	p.Pods = append(p.Pods, c.Pods...)
	slices.SortFunc(p.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	return plainSolve(p, o)
}
