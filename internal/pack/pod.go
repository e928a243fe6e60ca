package pack

import "fmt"

// SetPod adds a pod or replaces the one of that name.
func (s *State) SetPod(p Pod) error {
	if p.Spec == nil {
		return fmt.Errorf("pod %q has no spec", p.Name)
	}
	slot, ok := s.podSlots[p.Name]
	if ok {
		s.unlink(slot)
		s.disown(slot)
	} else {
		slot = int32(len(s.pods))
		if k := len(s.freePods); k > 0 {
			slot = s.freePods[k-1]
			s.freePods = s.freePods[:k-1]
		} else {
			s.pods = append(s.pods, pod{})
		}
		s.podSlots[p.Name] = slot
	}
	sp := s.specOf(p.Spec, p.Namespace)
	class := s.classOf(p.Namespace, p.Labels)
	s.pods[slot] = pod{name: p.Name, spec: sp, src: p.Spec, class: class, priority: p.Priority, daemon: p.Daemon, leaving: p.Leaving, classPrev: -1, classNext: class.head}
	if class.head >= 0 {
		s.pods[class.head].classPrev = slot
	}
	class.head = slot
	switch node, known := s.nodeSlots[p.Node]; {
	case p.Node == "":
		pd := &s.pods[slot]
		pd.node, pd.prev = pendingNode, int32(len(s.pending))
		s.pending = append(s.pending, slot)
	case known:
		s.link(slot, node)
		s.occupy(slot, 1)
		s.tell(slot, 1)
	default:
		s.await(slot, p.Node)
	}
	return nil
}

// RemovePod forgets a pod.
func (s *State) RemovePod(name string) {
	slot, ok := s.podSlots[name]
	if !ok {
		return
	}
	s.unlink(slot)
	s.disown(slot)
	delete(s.podSlots, name)
	s.pods[slot] = pod{}
	s.freePods = append(s.freePods, slot)
}

// link puts a pod into its node's list.
func (s *State) link(slot, node int32) {
	pd, nd := &s.pods[slot], &s.nodes[node]
	pd.node, pd.prev, pd.next = node, -1, nd.head
	if nd.head >= 0 {
		s.pods[nd.head].prev = slot
	}
	nd.head = slot
}

// await keeps a pod for a node that is not known.
func (s *State) await(slot int32, node string) {
	s.pods[slot].node = awaitedNode
	waiting := s.awaited[node]
	if waiting == nil {
		waiting = map[int32]struct{}{}
		s.awaited[node] = waiting
	}
	waiting[slot] = struct{}{}
	s.awaitedAt[slot] = node
}

// unlink takes a pod from where it is, with its effects.
func (s *State) unlink(slot int32) {
	pd := &s.pods[slot]
	switch pd.node {
	case pendingNode:
		last := s.pending[len(s.pending)-1]
		s.pending[pd.prev] = last
		s.pods[last].prev = pd.prev
		s.pending = s.pending[:len(s.pending)-1]
		return
	case awaitedNode:
		name := s.awaitedAt[slot]
		delete(s.awaitedAt, slot)
		if delete(s.awaited[name], slot); len(s.awaited[name]) == 0 {
			delete(s.awaited, name)
		}
		return
	}
	s.tell(slot, -1)
	if pd.prev >= 0 {
		s.pods[pd.prev].next = pd.next
	} else {
		s.nodes[pd.node].head = pd.next
	}
	if pd.next >= 0 {
		s.pods[pd.next].prev = pd.prev
	}
	s.occupy(slot, -1)
}

// disown takes a pod from its class and spec.
func (s *State) disown(slot int32) {
	pd := &s.pods[slot]
	if pd.classPrev >= 0 {
		s.pods[pd.classPrev].classNext = pd.classNext
	} else {
		pd.class.head = pd.classNext
	}
	if pd.classNext >= 0 {
		s.pods[pd.classNext].classPrev = pd.classPrev
	}
	s.releaseClass(pd.class)
	s.releaseSpec(pd.src, pd.spec)
}

// occupy takes what the pod asks for from its node n times. A daemon's pod takes
// what was set aside for it, so that its node is computed anew.
func (s *State) occupy(slot int32, n int64) {
	pd := &s.pods[slot]
	if pd.daemon {
		s.refill(pd.node)
		return
	}
	v := s.room(pd.node)
	for r, q := range pd.spec.demand {
		v[r] -= n * q
	}
	s.order.touch(s.nodes[pd.node].at)
}

// tell counts the pod n times in the tallies that it matters to.
func (s *State) tell(slot int32, n int32) {
	pd := &s.pods[slot]
	for _, sel := range pd.class.in {
		for _, t := range sel.counts {
			if !(pd.leaving && t.spreads()) {
				t.add(s, pd.node, n)
			}
		}
	}
	for _, t := range pd.spec.marks {
		t.add(s, pd.node, n)
	}
}
