package pack

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// plainWorld is a problem being solved one pod at a time, every rule applied as
// it is worded and nothing remembered between pods.
type plainWorld struct {
	p     Problem
	o     Options
	nodes []*plainNode
	fresh int
}

// plainNode is an existing node, or one to open with all that it may still be.
type plainNode struct {
	name   string
	isNew  bool
	pool   *Pool
	node   *Node
	labels map[string]string
	sets   map[string]Set // labels not settled yet
	taints []Taint
	pods   []*Pod
	cands  []plainCand // new nodes only
	free   Resources   // existing nodes only: allocatable less daemons to come
	attach map[string]int
}

// plainCand is one type and offering that a new node may be.
type plainCand struct {
	typ    *InstanceType
	off    *Offering
	labels map[string]string
	free   Resources
	ports  []HostPort
}

func newPlainWorld(p Problem, o Options) *plainWorld {
	w := &plainWorld{p: p, o: o}
	byName := map[string]*plainNode{}
	pools := map[string]*Pool{}
	for i := range p.Pools {
		pools[p.Pools[i].Name] = &p.Pools[i]
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		pn := &plainNode{name: n.Name, node: n, pool: pools[n.Pool], labels: maps.Clone(n.Labels), taints: n.Taints, attach: n.Attach, sets: map[string]Set{}}
		if pn.labels == nil {
			pn.labels = map[string]string{}
		}
		pn.labels[FieldName] = n.Name
		for _, r := range n.Requirements {
			if _, ok := pn.labels[r.Key]; !ok {
				have, ok := pn.sets[r.Key]
				if !ok {
					have = Anything()
				}
				pn.sets[r.Key] = have.Intersect(r.Set())
			}
		}
		byName[n.Name] = pn
		w.nodes = append(w.nodes, pn)
	}
	slices.SortFunc(w.nodes, func(a, b *plainNode) int {
		if a.node.Initialized != b.node.Initialized {
			if a.node.Initialized {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	for i := range p.Pods {
		pod := &p.Pods[i]
		if n := byName[pod.Node]; n != nil {
			n.pods = append(n.pods, pod)
		}
	}
	for _, n := range w.nodes {
		n.free = maps.Clone(n.node.Allocatable)
		due := w.daemonRequests(n.labels, n.taints, n.sets)
		for _, pod := range n.pods {
			if pod.Daemon {
				for r, q := range podRequests(pod.Spec) {
					due[r] = max(0, due[r]-q)
				}
			}
		}
		for r, q := range due {
			n.free[r] -= q
		}
	}
	return w
}

func plainSolve(p Problem, o Options) *Plan {
	w := newPlainWorld(p, o)
	var pending []*Pod
	for i := range p.Pods {
		if p.Pods[i].Node == "" {
			pending = append(pending, &p.Pods[i])
		}
	}
	slices.SortFunc(pending, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority),
			cmp.Compare(b.Spec.Requests[CPU], a.Spec.Requests[CPU]),
			cmp.Compare(b.Spec.Requests[Memory], a.Spec.Requests[Memory]),
			cmp.Compare(a.Name, b.Name))
	})
	plan := &Plan{}
	for progress := true; progress && len(pending) > 0; {
		progress = false
		var left []*Pod
		for _, pod := range pending {
			if w.place(pod) {
				progress = true
			} else {
				left = append(left, pod)
			}
		}
		pending = left
	}
	for _, pod := range pending {
		plan.Unschedulable = append(plan.Unschedulable, Unschedulable{Pod: pod.Name, Reasons: w.explain(pod)})
	}
	w.report(plan)
	return plan
}

// podRequests adds the place that every pod takes.
func podRequests(s *PodSpec) Resources {
	r := maps.Clone(s.Requests)
	if r == nil {
		r = Resources{}
	}
	r[Pods] = 1
	return r
}

// variants returns the spec with all preferences made required, then with one
// fewer at a time in the documented order, down to none.
func (w *plainWorld) variants(s *PodSpec) []*PodSpec {
	v := *s
	var soft []Spread
	v.Spread = nil
	for _, c := range s.Spread {
		if c.ScheduleAnyway {
			soft = append(soft, c)
		} else {
			v.Spread = append(v.Spread, c)
		}
	}
	hard := v.Spread
	byWeight := func(terms []WeightedPodTerm) []WeightedPodTerm {
		terms = slices.Clone(terms)
		slices.SortStableFunc(terms, func(a, b WeightedPodTerm) int { return cmp.Compare(b.Weight, a.Weight) })
		return terms
	}
	aff, anti := byWeight(s.PreferredPodAffinity), byWeight(s.PreferredPodAntiAffinity)
	prefs := slices.Clone(s.Preferred)
	slices.SortStableFunc(prefs, func(a, b Preference) int { return cmp.Compare(b.Weight, a.Weight) })
	noTaints := false
	make := func() *PodSpec {
		c := v
		c.Preferred, c.PreferredPodAffinity, c.PreferredPodAntiAffinity = nil, nil, nil
		c.NodeSelector = slices.Clone(s.NodeSelector)
		if len(prefs) > 0 {
			c.NodeSelector = append(c.NodeSelector, prefs[0].Requirements...)
		}
		c.PodAffinity = slices.Clone(s.PodAffinity)
		for _, t := range aff {
			c.PodAffinity = append(c.PodAffinity, t.PodTerm)
		}
		c.PodAntiAffinity = slices.Clone(s.PodAntiAffinity)
		for _, t := range anti {
			c.PodAntiAffinity = append(c.PodAntiAffinity, t.PodTerm)
		}
		c.Spread = append(slices.Clone(hard), soft...)
		c.Tolerations = slices.Clone(s.Tolerations)
		if noTaints {
			c.Tolerations = append(c.Tolerations, Toleration{Exists: true, Effect: PreferNoSchedule})
		}
		return &c
	}
	if w.o.Preferences == Ignore {
		soft, aff, anti, prefs, noTaints = nil, nil, nil, nil, true
		return []*PodSpec{make()}
	}
	out := []*PodSpec{make()}
	for ; len(aff) > 0; out = append(out, make()) {
		aff = aff[1:]
	}
	for ; len(anti) > 0; out = append(out, make()) {
		anti = anti[1:]
	}
	for ; len(prefs) > 0; out = append(out, make()) {
		prefs = prefs[1:]
	}
	for ; len(soft) > 0; out = append(out, make()) {
		soft = soft[1:]
	}
	noTaints = true
	return append(out, make())
}

func (w *plainWorld) place(pod *Pod) bool {
	variants := w.variants(pod.Spec)
	if w.o.Preferences == Respect {
		for _, s := range variants {
			if w.placeOpen(pod, s) || w.placeNew(pod, s) {
				return true
			}
		}
		return false
	}
	for _, s := range variants {
		if w.placeOpen(pod, s) {
			return true
		}
	}
	for _, s := range variants {
		if w.placeNew(pod, s) {
			return true
		}
	}
	return false
}

func (w *plainWorld) placeOpen(pod *Pod, s *PodSpec) bool {
	for _, n := range w.nodes {
		if w.add(n, pod, s) {
			return true
		}
	}
	return false
}

func (w *plainWorld) placeNew(pod *Pod, s *PodSpec) bool {
	pools := make([]*Pool, 0, len(w.p.Pools))
	for i := range w.p.Pools {
		pools = append(pools, &w.p.Pools[i])
	}
	slices.SortFunc(pools, func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(b.Name, a.Name))
	})
	for _, pool := range pools {
		n := w.open(pool)
		if n != nil && w.add(n, pod, s) {
			w.nodes = append(w.nodes, n)
			w.fresh++
			return true
		}
	}
	return false
}

// open returns a new node of the pool with everything that it may be within the
// limits, or nil.
func (w *plainWorld) open(pool *Pool) *plainNode {
	w.fresh++
	n := &plainNode{name: "new-" + strconv.Itoa(w.fresh), isNew: true, pool: pool, taints: pool.Taints, sets: map[string]Set{}}
	w.fresh--
	n.labels = maps.Clone(pool.Labels)
	if n.labels == nil {
		n.labels = map[string]string{}
	}
	n.labels[LabelPool], n.labels[LabelHostname] = pool.Name, n.name
	n.cands = w.candidates(pool, true)
	if len(n.cands) == 0 {
		return nil
	}
	for _, r := range pool.Requirements {
		if _, ok := n.cands[0].labels[r.Key]; ok || pool.definedByTypes(r.Key) {
			continue
		}
		if _, ok := n.labels[r.Key]; ok {
			continue
		}
		if _, ok := n.sets[r.Key]; !ok {
			n.sets[r.Key] = Anything()
		}
		n.sets[r.Key] = n.sets[r.Key].Intersect(r.Set())
	}
	return n
}

// definedByTypes reports whether any type or offering of the pool has the label.
func (p *Pool) definedByTypes(key string) bool {
	for i := range p.Types {
		if _, ok := p.Types[i].Labels[key]; ok {
			return true
		}
		for j := range p.Types[i].Offerings {
			if _, ok := p.Types[i].Offerings[j].Labels[key]; ok {
				return true
			}
		}
	}
	return key == LabelInstanceType || key == LabelZone || key == LabelCapacityType
}

// candidates lists the types and offerings that the pool's requirements allow
// and that are for sale, the cheapest first; within limits if asked.
func (w *plainWorld) candidates(pool *Pool, limits bool) []plainCand {
	var room, all Resources
	if limits {
		room = w.room(pool.Limits, func(n *plainNode) bool { return n.pool == pool }, pool.Usage)
		all = w.room(w.p.Limits, func(*plainNode) bool { return true }, nil)
	}
	var out []plainCand
	for i := range pool.Types {
		t := &pool.Types[i]
		if !within(t.Capacity, room) || !within(t.Capacity, all) {
			continue
		}
	offerings:
		for j := range t.Offerings {
			o := &t.Offerings[j]
			if !o.Available || o.ReservationID != "" && w.taken(o.ReservationID) >= w.reservedCount(o.ReservationID) {
				continue
			}
			labels := map[string]string{}
			maps.Copy(labels, t.Labels)
			maps.Copy(labels, o.Labels)
			labels[LabelInstanceType], labels[LabelZone], labels[LabelCapacityType] = t.Name, o.Zone, o.CapacityType
			for _, r := range pool.Requirements {
				if v, ok := labels[r.Key]; ok {
					if !r.Set().Has(v) {
						continue offerings
					}
				} else if pool.definedByTypes(r.Key) && !r.Set().HasAbsent() {
					continue offerings
				}
			}
			c := plainCand{typ: t, off: o, labels: labels, free: maps.Clone(t.Allocatable)}
			full := maps.Clone(labels)
			maps.Copy(full, pool.Labels)
			full[LabelPool] = pool.Name
			for r, q := range w.daemonRequests(full, pool.Taints, nil) {
				c.free[r] -= q
			}
			for k := range w.p.Daemons {
				if s := w.p.Daemons[k].Spec; plainNodeMatches(s, full, nil, nil) && tolerates(s.Tolerations, pool.Taints, true) {
					c.ports = append(c.ports, s.HostPorts...)
				}
			}
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b plainCand) int {
		return cmp.Or(cmp.Compare(a.off.MicroUSD, b.off.MicroUSD), cmp.Compare(a.typ.Name, b.typ.Name),
			cmp.Compare(a.off.CapacityType, b.off.CapacityType), cmp.Compare(a.off.Zone, b.off.Zone), cmp.Compare(a.off.ReservationID, b.off.ReservationID))
	})
	return out
}

// reservedCount is the least count that any offering states.
func (w *plainWorld) reservedCount(id string) int {
	count := -1
	for i := range w.p.Pools {
		for j := range w.p.Pools[i].Types {
			for _, o := range w.p.Pools[i].Types[j].Offerings {
				if o.ReservationID == id && (count < 0 || o.ReservedCount < count) {
					count = o.ReservedCount
				}
			}
		}
	}
	return count
}

// taken counts the new nodes that may come from the reservation.
func (w *plainWorld) taken(id string) int {
	count := 0
	for _, n := range w.nodes {
		if slices.ContainsFunc(n.cands, func(c plainCand) bool { return c.off.ReservationID == id }) {
			count++
		}
	}
	return count
}

// room is what limits leave, nil for no limits.
func (w *plainWorld) room(limits Resources, counts func(*plainNode) bool, usage Resources) Resources {
	if limits == nil {
		return nil
	}
	room := maps.Clone(limits)
	take := func(r Resources) {
		for name := range room {
			if name == NodeCount {
				room[name] -= 1
			} else {
				room[name] -= r[name]
			}
		}
	}
	for name, q := range usage {
		if _, ok := room[name]; ok {
			room[name] -= q
		}
	}
	for _, n := range w.nodes {
		switch {
		case !counts(n):
		case n.isNew:
			most := Resources{}
			for _, c := range n.cands {
				for name, q := range c.typ.Capacity {
					most[name] = max(most[name], q)
				}
			}
			take(most)
		case usage == nil:
			take(n.node.Capacity)
		}
	}
	return room
}

func within(capacity, room Resources) bool {
	for name, q := range room {
		need := capacity[name]
		if name == NodeCount {
			need = 1
		}
		if need > q {
			return false
		}
	}
	return true
}

// daemonRequests sums the requests of the daemons that a node will run.
func (w *plainWorld) daemonRequests(labels map[string]string, taints []Taint, sets map[string]Set) Resources {
	sum := Resources{}
	for i := range w.p.Daemons {
		s := w.p.Daemons[i].Spec
		if tolerates(s.Tolerations, taints, true) && plainNodeMatches(s, labels, sets, nil) {
			for r, q := range podRequests(s) {
				sum[r] += q
			}
		}
	}
	return sum
}

// plainNodeMatches reports whether labels meet the pod's required node affinity. A
// label that is not there may still get any value in sets; unknown says what to
// do with it if the outcome is open (nil accepts it).
func plainNodeMatches(s *PodSpec, labels map[string]string, sets map[string]Set, unknown func(Set, Set) bool) bool {
	ok := func(reqs []Requirement) bool {
		for _, r := range reqs {
			if v, has := labels[r.Key]; has {
				if !r.Set().Has(v) {
					return false
				}
				continue
			}
			have, open := sets[r.Key]
			if !open {
				have = Absent()
			}
			if unknown != nil {
				if !unknown(have, r.Set()) {
					return false
				}
			} else if have.Intersect(r.Set()).Empty() {
				return false
			}
		}
		return true
	}
	if !ok(s.NodeSelector) {
		return false
	}
	for _, term := range s.Affinity {
		if len(term) > 0 && ok(term) {
			return true
		}
	}
	return s.Affinity == nil
}

// tolerates reports whether all taints are tolerated; soft ones are skipped on
// demand.
func tolerates(tolerations []Toleration, taints []Taint, skipSoft bool) bool {
	for _, t := range taints {
		if skipSoft && t.Effect == PreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(o Toleration) bool { return o.tolerates(t) }) {
			return false
		}
	}
	return true
}

// outcome is what is known of a label on the node.
func (n *plainNode) outcome(w *plainWorld, key string) Set {
	if v, ok := n.labels[key]; ok {
		return OneOf(v)
	}
	if s, ok := n.sets[key]; ok {
		return s
	}
	if slices.Contains(w.p.WellKnown, key) && !(n.pool != nil && n.pool.definedByTypes(key)) {
		return Anything()
	}
	return Absent()
}
