package pack

import (
	"cmp"
	"maps"
	"slices"
)

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
	// or limits, and adds those of other names.
	Pools []Pool
	// Pods are pending pods in addition. They replace pods of the same name.
	Pods []Pod
	// OnlyMoved leaves out the pods that are pending in the state itself.
	OnlyMoved bool
}

// WhatIf plans as if the change had been made. The state stays as it is.
//
// It costs what the change and the pods concerned cost: the nodes and pods that
// stay are neither copied nor visited, but for the search for room.
func (s *State) WhatIf(c Change, o Options) *Plan {
	o = o.withDefaults()
	var put []string
	var replaced []Pod
	for _, p := range c.Pods {
		if slot, ok := s.podSlots[p.Name]; ok {
			replaced = append(replaced, s.podAt(slot))
		}
		if s.SetPod(p) == nil {
			put = append(put, p.Name)
		}
	}
	s.refresh()
	var pods []int32
	if !c.OnlyMoved {
		pods = append(pods, s.pending...)
	} else {
		for _, name := range put {
			if slot := s.podSlots[name]; s.pods[slot].node == pendingNode {
				pods = append(pods, slot)
			}
		}
	}
	sp, shut := s.spaceFor(c.Pools), newBitset(len(s.nodes))
	s.hidden = newBitset(len(s.nodes))
	var gone []int32
	for _, name := range c.Without {
		slot, ok := s.nodeSlots[name]
		if !ok || shut.has(int(slot)) {
			continue
		}
		shut.set(int(slot))
		gone = append(gone, slot)
		s.hidden.set(int(slot))
		for p := s.nodes[slot].head; p >= 0; p = s.pods[p].next {
			if !s.pods[p].daemon {
				pods = append(pods, p)
			}
			s.tell(p, -1)
		}
		s.use(slot, -1)
		s.classes.list[s.nodes[slot].class].live--
	}
	for _, name := range c.Closed {
		if slot, ok := s.nodeSlots[name]; ok {
			shut.set(int(slot))
		}
	}
	slices.SortFunc(pods, func(a, b int32) int { return cmp.Compare(s.pods[a].name, s.pods[b].name) })
	v := newSolver(s, o, sp, shut).solve(pods)
	plan := v.report()
	// Take everything back.
	v.undo()
	s.hidden = nil
	for _, slot := range gone {
		s.classes.list[s.nodes[slot].class].live++
		s.use(slot, 1)
		for p := s.nodes[slot].head; p >= 0; p = s.pods[p].next {
			s.tell(p, 1)
		}
	}
	for _, name := range put {
		s.RemovePod(name)
	}
	for _, p := range replaced {
		if s.SetPod(p) != nil {
			panic("pack: a pod that was set cannot be set again")
		}
	}
	return plan
}

// podAt returns a pod as it was set.
func (s *State) podAt(slot int32) Pod {
	pd := &s.pods[slot]
	p := Pod{Name: pd.name, Namespace: pd.class.namespace, Labels: pd.class.labels, Priority: pd.priority, Daemon: pd.daemon, Spec: pd.src}
	switch pd.node {
	case pendingNode:
	case awaitedNode:
		p.Node = s.awaitedAt[slot]
	default:
		p.Node = s.nodes[pd.node].Name
	}
	return p
}

// spaceFor returns the space of the state's pools with some replaced.
func (s *State) spaceFor(changed []Pool) *space {
	if len(changed) == 0 {
		if s.space == nil {
			s.space = s.layOut(s.pools, s.tables)
		}
		return s.space
	}
	pools := slices.Clone(s.pools)
	for _, p := range changed {
		for i := range p.Types {
			s.axis.add(p.Types[i].Allocatable, p.Types[i].Attach)
			s.axis.add(p.Types[i].Capacity, nil)
		}
		if i := slices.IndexFunc(pools, func(q Pool) bool { return q.Name == p.Name }); i >= 0 {
			pools[i] = p
		} else {
			pools = append(pools, p)
		}
	}
	s.widen()
	// Tables of types that are only asked about are not kept.
	return s.layOut(pools, maps.Clone(s.tables))
}

func (s *State) layOut(pools []Pool, tables map[*InstanceType]*typeTable) *space {
	var daemons []*filter
	var demands [][]int64
	for i := range s.daemons {
		daemons = append(daemons, s.filters.at(s.daemons[i].filter))
		demands = append(demands, s.daemons[i].demand)
	}
	return newSpace(pools, daemons, demands, s.axis, tables, s.wellKnown, s.mentions)
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	o.WeightMicroUSD = cmp.Or(o.WeightMicroUSD, 100)
	o.MarginPercent = cmp.Or(o.MarginPercent, 25)
	o.MinTypes = cmp.Or(o.MinTypes, 15)
	o.Work = cmp.Or(o.Work, 64)
	return o
}
