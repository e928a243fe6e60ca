package ec2sim

// Reset takes back what came of calls and scenarios since New: instances, which
// end at once, launch templates, instance profiles, reservations, placement
// groups, messages, effects, spending, and the counters of calls and of the
// throttle. Clusters, the network, images, queues and their tags stay; time,
// prices and IDs go on. Steps of a scenario that are still to come are called off.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++ // calls off what waits
	for _, id := range s.order {
		i := s.instances[id]
		if i.state == StateTerminated {
			continue
		}
		if i.live() {
			i.reason, i.ended = "Client.UserInitiatedShutdown", s.clock.Now()
			s.enter(i, StateShuttingDown)
		}
		i.subnet.release(i.addr)
		s.enter(i, StateTerminated)
	}
	s.instances, s.order = map[string]*instance{}, nil
	s.templates, s.tokens = map[string]*template{}, map[string]tokenResult{}
	s.reservations, s.groups = map[string]*reservation{}, map[string]*placementGroup{}
	s.shifts, s.pools = map[string]*zonalShift{}, map[poolKey]*pool{}
	s.profiles = map[string]*profile{}
	for _, name := range s.cfg.InstanceProfiles {
		s.addProfile(name, "/", map[string]string{}).role = name
	}
	kept := map[string]bool{}
	for _, sub := range s.net.subnets {
		kept[sub.id] = true
	}
	for _, g := range s.net.groups {
		kept[g.id] = true
	}
	for id := range s.images {
		kept[id] = true
	}
	for id := range s.tags {
		if !kept[id] {
			delete(s.tags, id)
		}
	}
	s.endEffects()
	s.moves = nil
	for _, q := range s.queues {
		q.messages = nil
	}
	s.spent = 0
	s.buckets, s.counters = map[string]*bucket{}, map[string]*counter{}
}
