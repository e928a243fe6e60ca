package pack

import (
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

// State is a problem that changes. What it costs to tell it of a change depends
// on the change, not on how much the state holds. It is not safe for concurrent
// use.
type State struct {
	axis *axis
	// Pools, and the space laid out from them when it is next needed.
	pools     []Pool
	limits    Resources
	wellKnown map[string]bool
	// mentions are what pods and daemons say about labels, by key. matters are the
	// keys that tell nodes apart, which stay: forgetting one would classify all nodes
	// anew.
	mentions map[string]*mention
	matters  map[string]struct{}
	tables   map[*InstanceType]*typeTable
	space    *space
	daemons  []daemon
	// softTaints counts PreferNoSchedule taints of pools and nodes.
	softTaints int

	filters filters
	specs   map[string]*spec
	// written finds the spec of a PodSpec that was seen before.
	written map[*PodSpec]*writtenSpec

	// Nodes, by slot. free has a vector a slot: what pods may still take.
	nodes     []node
	nodeSlots map[string]int32
	freeSlots []int32
	free      []int64
	order     ordering
	classes   nodeClasses
	usage     map[string]*usage

	// Pods, by slot. awaited are those whose node is not known.
	pods     []pod
	podSlots map[string]int32
	freePods []int32
	pending  []int32
	awaited  map[string]map[int32]struct{}
	// awaitedAt is the node that each of them waits for.
	awaitedAt map[int32]string

	// Topology.
	labelClasses map[string]*labelClass
	byNamespace  map[string]map[*labelClass]struct{}
	selections   map[string]*selection
	anchored     map[string][]*selection
	unanchored   []*selection
	tallies      map[string]*tally
	// ports are the tallies of host ports by number.
	ports  map[int32][]*tally
	values map[string]*symbols

	// hidden are the nodes that a what-if takes away.
	hidden bitset

	buf   []byte
	names []string
}

// daemon is a Daemon with its filter.
type daemon struct {
	name   string
	spec   *PodSpec
	filter int32
	demand []int64
}

// writtenSpec counts the pods that share one PodSpec.
type writtenSpec struct {
	spec *spec
	refs int
}

// usage is what the nodes of a pool have.
type usage struct {
	capacity []int64
	nodes    int64
}

// node is a Node in its slot.
type node struct {
	Node
	live bool
	// class is valid while the set of labels that matter is the one it was made
	// for.
	class, classGen int32
	// head is the node's first pod, or -1.
	head int32
	// at is the node's place in the ordering.
	at int32
}

// pod is a Pod in its slot, a member of two lists: its node's or the pending
// ones, and its class's.
type pod struct {
	name                 string
	spec                 *spec
	src                  *PodSpec
	class                *labelClass
	node                 int32 // slot, or one of the constants below
	priority             int32
	daemon, leaving      bool
	next, prev           int32 // prev is the place among the pending if pending
	classNext, classPrev int32
}

const (
	nowhere     = -1
	pendingNode = -2
	awaitedNode = -3
)

// NewState takes a problem. It refuses duplicate names and pods without a spec;
// the problem's slices of types, its specs and its maps are kept.
func NewState(p Problem) (*State, error) {
	s := &State{
		axis:         newAxis(),
		wellKnown:    map[string]bool{},
		mentions:     map[string]*mention{},
		matters:      map[string]struct{}{},
		tables:       map[*InstanceType]*typeTable{},
		specs:        map[string]*spec{},
		written:      map[*PodSpec]*writtenSpec{},
		nodeSlots:    make(map[string]int32, len(p.Nodes)),
		usage:        map[string]*usage{},
		podSlots:     make(map[string]int32, len(p.Pods)),
		awaited:      map[string]map[int32]struct{}{},
		awaitedAt:    map[int32]string{},
		labelClasses: map[string]*labelClass{},
		byNamespace:  map[string]map[*labelClass]struct{}{},
		selections:   map[string]*selection{},
		anchored:     map[string][]*selection{},
		tallies:      map[string]*tally{},
		values:       map[string]*symbols{},
		ports:        map[int32][]*tally{},
	}
	if err := s.SetPools(p.Pools, p.Limits, p.WellKnown); err != nil {
		return nil, err
	}
	if err := s.SetDaemons(p.Daemons); err != nil {
		return nil, err
	}
	// The axis is cheapest to extend before there are nodes.
	for i := range p.Nodes {
		s.axis.add(p.Nodes[i].Allocatable, p.Nodes[i].Attach)
		s.axis.add(p.Nodes[i].Capacity, nil)
	}
	for i := range p.Pods {
		if p.Pods[i].Spec != nil {
			s.learn(p.Pods[i].Spec)
		}
	}
	for _, n := range p.Nodes {
		if _, ok := s.nodeSlots[n.Name]; ok {
			return nil, fmt.Errorf("node %q is listed twice", n.Name)
		}
		s.SetNode(n)
	}
	for _, pod := range p.Pods {
		if _, ok := s.podSlots[pod.Name]; ok {
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
	for i := range s.pools {
		s.countSoftTaints(s.pools[i].Taints, -1)
	}
	if !slices.EqualFunc(s.pools, pools, samePolicy) {
		for _, sp := range s.specs {
			s.dropForms(sp)
		}
	}
	s.pools, s.limits = slices.Clone(pools), maps.Clone(limits)
	clear(s.wellKnown)
	for _, key := range wellKnown {
		s.wellKnown[key] = true
	}
	for i := range s.pools {
		s.countSoftTaints(s.pools[i].Taints, 1)
		for j := range s.pools[i].Types {
			t := &s.pools[i].Types[j]
			s.axis.add(t.Allocatable, t.Attach)
			s.axis.add(t.Capacity, nil)
		}
	}
	s.widen()
	clear(s.tables)
	s.space = nil
	return nil
}

// samePolicy reports whether pods' preferences count alike in two pools.
func samePolicy(a, b Pool) bool {
	return a.Name == b.Name && (a.Preferences == nil) == (b.Preferences == nil) && (a.Preferences == nil || *a.Preferences == *b.Preferences)
}

// countSoftTaints keeps account of whether any soft taint exists, on which the
// forms of specs depend.
func (s *State) countSoftTaints(taints []Taint, n int) {
	had := s.softTaints > 0
	for _, t := range taints {
		if t.Effect == PreferNoSchedule {
			s.softTaints += n
		}
	}
	if had != (s.softTaints > 0) {
		for _, sp := range s.specs {
			s.dropForms(sp)
		}
	}
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
	old := s.daemons
	s.daemons = nil
	for _, d := range daemons {
		s.learn(d.Spec)
		s.mention(d.Spec, 1)
		f := newFilter(d.Spec, hardTaints, false)
		f.ports = d.Spec.HostPorts
		f.seal()
		s.daemons = append(s.daemons, daemon{d.Name, d.Spec, s.filters.acquire(f), nil})
	}
	for _, d := range old {
		s.mention(d.spec, -1)
		s.releaseFilter(d.filter)
	}
	s.widen()
	s.weighDaemons()
	s.space = nil
	for slot := range s.nodes {
		if s.nodes[slot].live {
			s.refill(int32(slot))
		}
	}
	return nil
}

// open reports whether some pool leaves the label open, so that what pods say
// about it shapes the space.
func (sp *space) open(key string, wellKnown map[string]bool) bool {
	for p := range sp.pools {
		ps := &sp.pools[p]
		if ps.table.column(key) != nil {
			continue
		}
		if _, ok := ps.sets[key]; ok || wellKnown[key] {
			return true
		}
	}
	return false
}

// widen gives every vector a place for each resource that the axis has.
func (s *State) widen() {
	width := len(s.axis.names)
	old := s.order.width
	if old == width {
		return
	}
	free := make([]int64, len(s.nodes)*width)
	for i := range s.nodes {
		v := free[i*width : (i+1)*width]
		copy(v, s.free[i*old:(i+1)*old])
		for j := old; j < width; j++ {
			if s.axis.isDriver(j) {
				v[j] = unlimited
			}
		}
	}
	s.free = free
	s.order.width, s.order.stale = width, true
	for _, u := range s.usage {
		u.capacity = append(u.capacity, make([]int64, width-len(u.capacity))...)
	}
	s.weighDaemons()
	clear(s.tables)
	s.space = nil
}

// weighDaemons computes what daemons ask for.
func (s *State) weighDaemons() {
	for i := range s.daemons {
		s.daemons[i].demand = make([]int64, len(s.axis.names))
		s.axis.demand(s.daemons[i].demand, s.daemons[i].spec)
	}
	s.classes.forgetDue()
}

// specOf returns the spec that a pod's PodSpec stands for and counts a use.
func (s *State) specOf(src *PodSpec, namespace string) *spec {
	// Terms without namespaces mean the pod's own, so that specs with such terms
	// differ by namespace.
	if w, ok := s.written[src]; ok && (w.spec.own == "" || w.spec.own == namespace) {
		w.refs++
		w.spec.refs++
		return w.spec
	}
	s.learn(src)
	s.widen()
	own := ""
	if src.usesOwnNamespace() {
		own = namespace
	}
	key := joined([]string{own, src.encode()})
	sp, ok := s.specs[key]
	if !ok {
		sp = &spec{key: key, own: own, src: src, demand: make([]int64, len(s.axis.names))}
		s.axis.demand(sp.demand, src)
		for _, t := range src.PodAntiAffinity {
			sp.marks = append(sp.marks, s.tallyOf([]podTerm{newPodTerm(t, namespace)}, t.TopologyKey, true, nowhere, nil))
		}
		for _, p := range src.HostPorts {
			sp.marks = append(sp.marks, s.portTally(p))
		}
		s.specs[key] = sp
		s.mention(src, 1)
	}
	sp.refs++
	if w, ok := s.written[src]; ok {
		// The same PodSpec in two namespaces: remembered for one of them.
		if w.spec == sp {
			w.refs++
		}
	} else {
		s.written[src] = &writtenSpec{sp, 1}
	}
	return sp
}

// usesOwnNamespace reports whether a term or constraint means the pod's own
// namespace.
func (p *PodSpec) usesOwnNamespace() bool {
	if len(p.Spread)+len(p.Beside) > 0 {
		return true
	}
	for _, terms := range [...][]PodTerm{p.PodAffinity, p.PodAntiAffinity} {
		for i := range terms {
			if !terms[i].AllNamespaces && len(terms[i].Namespaces) == 0 {
				return true
			}
		}
	}
	for _, terms := range [...][]WeightedPodTerm{p.PreferredPodAffinity, p.PreferredPodAntiAffinity} {
		for i := range terms {
			if !terms[i].AllNamespaces && len(terms[i].Namespaces) == 0 {
				return true
			}
		}
	}
	return false
}

func (s *State) releaseSpec(src *PodSpec, sp *spec) {
	if w, ok := s.written[src]; ok && w.spec == sp {
		if w.refs--; w.refs == 0 {
			delete(s.written, src)
		}
	}
	if sp.refs--; sp.refs > 0 {
		return
	}
	delete(s.specs, sp.key)
	s.mention(sp.src, -1)
	s.dropForms(sp)
	for _, t := range sp.marks {
		s.releaseTally(t)
	}
}

// releaseFilter ends a use of a filter and forgets its answers with the last.
func (s *State) releaseFilter(id int32) {
	f := s.filters.at(id)
	if s.filters.release(id) && s.space != nil {
		delete(s.space.answers, f)
	}
}
