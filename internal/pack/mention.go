package pack

// mention is what pods say about a label: how many specs name it, and the sets that
// they ask for. What no pod says any more is forgotten, so that a plan depends on
// what there is and not on what there was.
type mention struct {
	refs int
	sets map[string]*mentionedSet
}

type mentionedSet struct {
	set  Set
	refs int
}

// learn makes the axis and the labels that matter cover a spec.
func (s *State) learn(p *PodSpec) {
	for name := range p.Requests {
		s.axis.id(name)
	}
	for i := range p.Volumes {
		if p.Volumes[i].Driver != "" {
			s.axis.id(driverPrefix + p.Volumes[i].Driver)
		}
	}
	p.eachMention(func(key string, _ *Requirement) {
		if _, ok := s.matters[key]; !ok {
			s.matters[key] = struct{}{}
			s.classes.gen++
		}
	})
}

// mention counts what a spec says about labels n times. Where a pool leaves such a
// label open, the space depends on it.
func (s *State) mention(p *PodSpec, n int) {
	p.eachMention(func(key string, r *Requirement) {
		m := s.mentions[key]
		changed := m == nil
		if changed {
			m = &mention{sets: map[string]*mentionedSet{}}
			s.mentions[key] = m
		}
		m.refs += n
		if r != nil {
			set := r.Set()
			s.buf = set.append(s.buf[:0])
			ms := m.sets[string(s.buf)]
			if ms == nil {
				ms = &mentionedSet{set: set}
				m.sets[string(s.buf)] = ms
				changed = true
			}
			if ms.refs += n; ms.refs == 0 {
				delete(m.sets, string(s.buf))
				changed = true
			}
		}
		if m.refs == 0 {
			delete(s.mentions, key)
			changed = true
		}
		if changed && s.space != nil && s.space.open(key, s.wellKnown) {
			s.space = nil
		}
	})
}

// eachMention calls f for each time that the spec names a label, with the
// requirement if it is one. Names of nodes aren't labels.
func (p *PodSpec) eachMention(f func(key string, r *Requirement)) {
	reqs := func(list []Requirement) {
		for i := range list {
			if !isNameKey(list[i].Key) {
				f(list[i].Key, &list[i])
			}
		}
	}
	key := func(k string) {
		if !isNameKey(k) {
			f(k, nil)
		}
	}
	for i := range p.Volumes {
		for _, t := range p.Volumes[i].Terms {
			reqs(t)
		}
	}
	reqs(p.NodeSelector)
	for _, t := range p.Affinity {
		reqs(t)
	}
	for _, t := range p.Preferred {
		reqs(t.Requirements)
	}
	for i := range p.Spread {
		key(p.Spread[i].TopologyKey)
	}
	for _, terms := range [...][]PodTerm{p.PodAffinity, p.PodAntiAffinity} {
		for i := range terms {
			key(terms[i].TopologyKey)
		}
	}
	for _, terms := range [...][]WeightedPodTerm{p.PreferredPodAffinity, p.PreferredPodAntiAffinity} {
		for i := range terms {
			key(terms[i].TopologyKey)
		}
	}
}
