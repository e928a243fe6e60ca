package pack

import (
	"cmp"
	"slices"
)

// nodeClasses numbers what nodes have in common as far as any filter can tell:
// the labels that some pod mentions, and taints.
type nodeClasses struct {
	ids  map[string]int32
	list []*nodeClass
	// gen counts the times that another label began to matter.
	gen int32
}

// nodeClass is the nodes that no filter tells apart, but for their names.
type nodeClass struct {
	labels map[string]string
	open   map[string]Set
	taints []Taint
	// live counts its nodes.
	live int
	// due is what daemons will ask for on each, nil until computed. It is not
	// kept for classes whose nodes a daemon tells apart by name.
	due []int64
}

func (c *nodeClasses) forgetDue() {
	for _, nc := range c.list {
		nc.due = nil
	}
}

// known returns what is known of a label on a node.
func (n *node) known(key string) Set {
	if key == FieldName {
		return OneOf(n.Name)
	}
	if v, ok := n.Labels[key]; ok {
		return OneOf(v)
	}
	set, some := Anything(), false
	for _, r := range n.Requirements {
		if r.Key == key {
			set, some = set.Intersect(r.Set()), true
		}
	}
	if some {
		return set
	}
	return Absent()
}

// SetNode adds a node or replaces the one of that name. Its pods stay.
func (s *State) SetNode(n Node) {
	s.axis.add(n.Allocatable, n.Attach)
	s.axis.add(n.Capacity, nil)
	s.widen()
	slot, ok := s.nodeSlots[n.Name]
	if ok {
		s.withdraw(slot)
	} else {
		slot = int32(len(s.nodes))
		if k := len(s.freeSlots); k > 0 {
			slot = s.freeSlots[k-1]
			s.freeSlots = s.freeSlots[:k-1]
		} else {
			s.nodes = append(s.nodes, node{})
			s.free = append(s.free, make([]int64, s.order.width)...)
		}
		s.nodes[slot] = node{head: -1}
		s.nodeSlots[n.Name] = slot
		s.order.stale = true
	}
	nd := &s.nodes[slot]
	if nd.live && nd.Initialized != n.Initialized {
		s.order.stale = true
	}
	*nd = node{Node: n, live: true, class: -1, head: nd.head, at: nd.at}
	s.countSoftTaints(n.Taints, 1)
	s.classify(slot)
	if !ok {
		waiting := s.awaited[n.Name]
		delete(s.awaited, n.Name)
		for p := range waiting {
			delete(s.awaitedAt, p)
			s.link(p, slot)
		}
	}
	s.refill(slot)
	for p := nd.head; p >= 0; p = s.pods[p].next {
		s.tell(p, 1)
	}
	s.use(slot, 1)
}

// withdraw takes the node's and its pods' effects back.
func (s *State) withdraw(slot int32) {
	nd := &s.nodes[slot]
	for p := nd.head; p >= 0; p = s.pods[p].next {
		s.tell(p, -1)
	}
	s.use(slot, -1)
	s.countSoftTaints(nd.Taints, -1)
	if nd.class >= 0 {
		s.classes.list[nd.class].live--
	}
}

// use counts a node n times towards its pool's usage and the total.
func (s *State) use(slot int32, n int64) {
	nd := &s.nodes[slot]
	for _, name := range [...]string{nd.Pool, ""} {
		u := s.usage[name]
		if u == nil {
			u = &usage{capacity: make([]int64, s.order.width)}
			s.usage[name] = u
		}
		u.nodes += n
		for r, q := range nd.Capacity {
			u.capacity[s.axis.id(r)] += n * q
		}
		if nd.Pool == "" {
			return
		}
	}
}

// RemoveNode forgets a node. Its pods stay known and count nowhere until they
// are set again or the node is.
func (s *State) RemoveNode(name string) {
	slot, ok := s.nodeSlots[name]
	if !ok {
		return
	}
	s.withdraw(slot)
	nd := &s.nodes[slot]
	for p := nd.head; p >= 0; {
		next := s.pods[p].next
		s.await(p, name)
		p = next
	}
	delete(s.nodeSlots, name)
	s.nodes[slot] = node{head: -1}
	s.freeSlots = append(s.freeSlots, slot)
	s.order.stale = true
}

// classify finds the node's class if it has none for the labels that matter now.
func (s *State) classify(slot int32) {
	nd := &s.nodes[slot]
	if nd.class >= 0 {
		if nd.classGen == s.classes.gen {
			return
		}
		s.classes.list[nd.class].live--
	}
	s.names = s.names[:0]
	for k := range s.matters {
		s.names = append(s.names, k)
	}
	slices.Sort(s.names)
	b := s.buf[:0]
	for _, k := range s.names {
		if v, ok := nd.Labels[k]; ok {
			b = appendString(appendString(b, k), v)
		}
	}
	b = append(b, 0xff)
	if _, ok := nd.Labels[LabelHostname]; ok {
		b = append(b, 1)
	}
	for _, c := range clauses(nd.Requirements) {
		if _, matters := s.matters[c.key]; matters {
			b = c.append(b)
		}
	}
	b = append(b, 0xff)
	taints := slices.Clone(nd.Taints)
	slices.SortFunc(taints, func(a, b Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Effect, b.Effect), cmp.Compare(a.Value, b.Value))
	})
	for _, t := range taints {
		b = appendString(appendString(append(b, byte(t.Effect)), t.Key), t.Value)
	}
	s.buf = b
	id, ok := s.classes.ids[string(b)]
	if !ok {
		if s.classes.ids == nil {
			s.classes.ids = map[string]int32{}
		}
		id = int32(len(s.classes.list))
		s.classes.ids[string(b)] = id
		nc := &nodeClass{labels: map[string]string{}, open: map[string]Set{}, taints: taints}
		for k := range s.matters {
			if v, ok := nd.Labels[k]; ok {
				nc.labels[k] = v
			} else if set := nd.known(k); !set.Equal(Absent()) {
				nc.open[k] = set
			}
		}
		s.classes.list = append(s.classes.list, nc)
	}
	s.classes.list[id].live++
	nd.class, nd.classGen = id, s.classes.gen
}

// refresh brings all nodes into classes for the labels that matter now, and the
// ordering up to date.
func (s *State) refresh() {
	if s.classes.gen != s.order.gen || len(s.classes.list) > 1024+4*len(s.nodeSlots) {
		if len(s.classes.list) > 1024+4*len(s.nodeSlots) {
			// Classes of nodes long gone: start again.
			s.classes = nodeClasses{gen: s.classes.gen + 1}
			for i := range s.nodes {
				s.nodes[i].class = -1
			}
			for _, f := range s.filters.list {
				if f != nil {
					f.classes = nil
				}
			}
		}
		for i := range s.nodes {
			if s.nodes[i].live {
				s.classify(int32(i))
			}
		}
		s.order.gen = s.classes.gen
	}
	s.order.update(s)
}

// admits reports whether a filter lets its pods onto a node, by labels and
// taints.
func (s *State) admits(id, slot int32) bool {
	f := s.filters.at(id)
	s.classify(slot)
	nd := &s.nodes[slot]
	if f.named {
		return s.admitsNode(f, nd)
	}
	for int(nd.class) >= len(f.classes) {
		f.classes = append(f.classes, make([]uint8, max(len(s.classes.list)-len(f.classes), 1))...)
	}
	if f.classes[nd.class] == unknown {
		f.classes[nd.class] = no
		if s.admitsNode(f, nd) {
			f.classes[nd.class] = yes
		}
	}
	return f.classes[nd.class] == yes
}

func (s *State) admitsNode(f *filter, nd *node) bool {
	return f.untolerated(nd.Taints) < 0 && f.allows(nd.known)
}

// mayAdmit reports whether some outcome of labels that are not settled lets a
// daemon onto the node.
func (f *filter) mayAdmit(nd *node) bool {
	if f.untolerated(nd.Taints) >= 0 {
		return false
	}
	for _, c := range f.choices {
		if !slices.ContainsFunc(c, func(alt []clause) bool {
			return !slices.ContainsFunc(alt, func(cl clause) bool { return nd.known(cl.key).Intersect(cl.set).Empty() })
		}) {
			return false
		}
	}
	return true
}

// due returns what daemons will ask for on a node.
func (s *State) due(slot int32) []int64 {
	nd := &s.nodes[slot]
	nc := s.classes.list[nd.class]
	if nc.due != nil {
		return nc.due
	}
	sum := make([]int64, s.order.width)
	named := false
	for i := range s.daemons {
		d := &s.daemons[i]
		f := s.filters.at(d.filter)
		named = named || f.named
		if f.mayAdmit(nd) {
			for r, q := range d.demand {
				sum[r] += q
			}
		}
	}
	if !named {
		nc.due = sum
	}
	return sum
}

// room returns the node's free vector.
func (s *State) room(slot int32) []int64 {
	w := s.order.width
	return s.free[int(slot)*w : (int(slot)+1)*w]
}

// refill computes what is free on a node from what it has, what runs there and
// what daemons will still ask for.
func (s *State) refill(slot int32) {
	nd := &s.nodes[slot]
	s.classify(slot)
	v := s.room(slot)
	s.axis.supply(v, nd.Allocatable, nd.Attach)
	due := slices.Clone(s.due(slot))
	for p := nd.head; p >= 0; p = s.pods[p].next {
		pd := &s.pods[p]
		for r, q := range pd.spec.demand {
			v[r] -= q
			if pd.daemon {
				due[r] = max(0, due[r]-q)
			}
		}
	}
	for r, q := range due {
		v[r] -= q
	}
	s.order.touch(nd.at)
}

// ordering is the sequence in which nodes are tried: initialized ones first, then
// by name. Runs of blockSize nodes know the most that any of them has free, so
// that a search passes over full nodes a block at a time.
type ordering struct {
	slots []int32
	// most has a vector for each block.
	most  []int64
	dirty []bool
	stale bool
	width int
	gen   int32
}

// blockSize is a compromise: smaller blocks are passed over more often, larger
// ones cost less to pass over. Measured best between 32 and 128 with 100,000
// nodes.
const blockSize = 64

// touch notes that what is free at a place changed.
func (o *ordering) touch(at int32) {
	if b := int(at) / blockSize; b < len(o.dirty) {
		o.dirty[b] = true
	}
}

func (o *ordering) update(s *State) {
	if o.stale {
		o.slots = o.slots[:0]
		for i := range s.nodes {
			if s.nodes[i].live {
				o.slots = append(o.slots, int32(i))
			}
		}
		slices.SortFunc(o.slots, func(a, b int32) int {
			x, y := &s.nodes[a], &s.nodes[b]
			if x.Initialized != y.Initialized {
				return int(b2i(y.Initialized) - b2i(x.Initialized))
			}
			return cmp.Compare(x.Name, y.Name)
		})
		blocks := (len(o.slots) + blockSize - 1) / blockSize
		o.most = slices.Grow(o.most[:0], blocks*o.width)[:blocks*o.width]
		o.dirty = slices.Grow(o.dirty[:0], blocks)[:blocks]
		for at, slot := range o.slots {
			s.nodes[slot].at = int32(at)
			o.dirty[at/blockSize] = true
		}
		o.stale = false
	}
	for b, dirty := range o.dirty {
		if !dirty {
			continue
		}
		o.dirty[b] = false
		most := o.most[b*o.width : (b+1)*o.width]
		for r := range most {
			most[r] = -unlimited
		}
		for _, slot := range o.slots[b*blockSize : min((b+1)*blockSize, len(o.slots))] {
			if s.nodes[slot].Closed {
				continue
			}
			for r, q := range s.room(slot) {
				most[r] = max(most[r], q)
			}
		}
	}
}
