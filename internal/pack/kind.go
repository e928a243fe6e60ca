package pack

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A batch is the pending pods that nothing tells apart: one spec, one priority,
// the same part in every topology constraint. They are placed one after another
// and share all that is learnt on the way.
type batch struct {
	spec     *spec
	class    *labelClass
	priority int32
	pods     []int32 // slots, sorted by name; the first placed ones are gone
	placed   int
	// kinds are its forms, the one that keeps most preferences first.
	first, last int32
	size        int64
	// adds are the groups that count a pod of the batch, repelled those of pods that
	// keep it away.
	adds, repelled []int32
}

// A kind is a batch in one of its forms, with all that the search needs at hand.
type kind struct {
	batch int32
	// demand is over the dimensions in use, full over the axis.
	demand []int64
	full   []int64
	filter int32
	lost   int64
	// worth is what the demand costs at the going rate, see rates.
	worth  int64
	scheme *scheme
	// charge is the number of what its pods are charged, see findCharges.
	charge int32
	// Topology: what is checked, and what is counted once a pod is placed.
	spreads []spreadCheck
	attract []int32
	// starts means that the pod itself is one that attract asks for.
	starts bool
	avoid  []int32
	adds   []int32
	// counts are those of adds that count a pod in each bucket, nil without adds.
	counts [][]int32
	// local means that some check is by node.
	local bool
	// zonal means that some check or count is by another label than the node's.
	zonal bool
	// Progress of the search, by bucket of the scheme.
	cursors []cursor
}

// spreadCheck is a spread constraint of a kind.
type spreadCheck struct {
	group      int32
	maxSkew    int32
	minDomains int32
	self       int32
}

// cursor is how far a kind's search for a place has come in one bucket. What it
// has passed will not do any more while the kind is being placed.
type cursor struct {
	node int
	bin  int
	// shut means that no new node will do either.
	shut bool
	// pick is the entry to open, or -1 if it has to be chosen.
	pick int32
}

// A scheme sorts what pods can be put on into buckets whose members settle the
// topology labels concerned alike. Kinds with the same filter and the same
// labels share a scheme.
type scheme struct {
	filter  int32
	keys    []schemeKey
	include []int32
	breeds  bitset
	buckets []bucket
	// ofNode is the bucket of each node class, or unsorted, or unfit.
	ofNode []int32
	ids    map[string]int32
}

// schemeKey is a topology label by its number; checked means that a node has to
// have it settled.
type schemeKey struct {
	key     int32
	checked bool
}

const (
	unsorted = -2
	unfit    = -1
)

// bucket is one way to settle a scheme's labels.
type bucket struct {
	values []int32 // by the label's number; -1 for absent and for labels not concerned
	passes []bool  // by the scheme's include filters
	breeds bitset
	some   bool // breeds is not empty
}

// group is a tally while a solution is being made: what runs and what was placed.
//
// A pod that spread let in when it was placed should still be let in if all
// others come first, because it is the scheduler that decides on the order.
// Therefore a domain remembers the strictest maximum skew of the pods placed in
// it, and pods that count there are held to it although they have no such
// constraint themselves.
type group struct {
	t      *tally
	key    int32 // number of the label, negative for counts by node, see keyOf
	counts []int32
	total  int32
	byNode map[int32]int32 // placed, by existing node
	// caps are the strictest maximum skews by value, nil if there are none yet;
	// nodeCaps are those by existing node.
	caps     []int32
	nodeCaps map[int32]int32
	// floored means that some constraint counts the emptiest domain as zero.
	floored bool
	// domains are the values over which spread takes its minimum, computed when
	// first needed; low is that minimum while valid.
	domains  []int32
	sought   bool
	low      int32
	lowValid bool
}

// count returns the pods on an existing node.
func (g *group) onNode(node int32) int32 { return g.t.byNode[node] + g.byNode[node] }

// at returns the pods at a value of the label.
func (g *group) at(value int32) int32 {
	if value < 0 || int(value) >= len(g.counts) {
		return 0
	}
	return g.counts[value]
}

// noCap is the cap of a domain without constrained pods.
const noCap = 1 << 30

func (g *group) capAt(value int32) int32 {
	if int(value) >= len(g.caps) {
		return noCap
	}
	return g.caps[value]
}

// holdTo notes the maximum skew of a pod placed in a domain.
func (g *group) holdTo(value, maxSkew int32) {
	for int(value) >= len(g.caps) {
		g.caps = append(g.caps, noCap)
	}
	g.caps[value] = min(g.caps[value], maxSkew)
}

// tallies of a form, acquired with it.
type formTallies struct {
	spreads, affinity, anti, preferred []*tally
}

// compileForm acquires the tallies that a form's constraints ask for.
func (s *State) compileForm(sp *spec, f *form, own string) {
	if f.tallies != nil {
		return
	}
	t := &formTallies{}
	for i := range f.spreads {
		c := &f.spreads[i]
		var need []string
		for j := range f.spreads {
			if d := &f.spreads[j]; !d.ScheduleAnyway && d.TopologyKey != c.TopologyKey {
				need = append(need, d.TopologyKey)
			}
		}
		slices.Sort(need)
		term := podTerm{namespaces: []string{own}, nothing: c.Selector.Nothing, clauses: clauses(c.Selector.Requirements)}
		t.spreads = append(t.spreads, s.tallyOf([]podTerm{term}, c.TopologyKey, false, c.include, slices.Compact(need)))
	}
	var all []podTerm
	for _, a := range f.affinity {
		all = append(all, newPodTerm(a, own))
	}
	for _, a := range f.affinity {
		t.affinity = append(t.affinity, s.tallyOf(all, a.TopologyKey, false, nowhere, nil))
	}
	for _, sel := range sp.src.Beside {
		t.affinity = append(t.affinity, s.tallyOf([]podTerm{newPodTerm(PodTerm{Selector: sel}, own)}, thisNode, false, nowhere, nil))
	}
	for _, a := range f.anti {
		t.anti = append(t.anti, s.tallyOf([]podTerm{newPodTerm(a, own)}, a.TopologyKey, false, nowhere, nil))
	}
	for _, a := range f.preferred {
		t.preferred = append(t.preferred, s.tallyOf([]podTerm{newPodTerm(a, own)}, a.TopologyKey, false, nowhere, nil))
	}
	f.tallies = t
}

// gather groups the pending pods into batches and compiles their kinds.
func (v *solver) gather(pods []int32) {
	s := v.s
	type id struct {
		spec     *spec
		class    *labelClass
		priority int32
	}
	index := map[id]int32{}
	for _, p := range pods {
		pd := &s.pods[p]
		k := id{pd.spec, pd.class, pd.priority}
		i, ok := index[k]
		if !ok {
			i = int32(len(v.batches))
			index[k] = i
			v.batches = append(v.batches, batch{spec: pd.spec, class: pd.class, priority: pd.priority})
		}
		v.batches[i].pods = append(v.batches[i].pods, p)
	}
	v.findDims()
	// Every tally that some pod checks becomes a group.
	for i := range v.batches {
		b := &v.batches[i]
		forms := v.formsOf(b.spec)
		for j := range forms {
			f := &forms[j]
			s.compileForm(b.spec, f, b.class.namespace)
			v.filters = append(v.filters, f.filter)
			for n, t := range f.tallies.spreads {
				v.groupOf(t)
				v.filters = append(v.filters, f.spreads[n].include)
			}
			for _, list := range [...][]*tally{f.tallies.affinity, f.tallies.anti, f.tallies.preferred} {
				for _, t := range list {
					v.groupOf(t)
				}
			}
		}
		for _, t := range v.repelling(b) {
			v.groupOf(t)
		}
	}
	v.mergeBatches()
	// Numbers of labels are in the order of their names, whatever was seen first.
	for i := range v.groups {
		t := v.groups[i].t
		if t.byNode == nil {
			v.keys = append(v.keys, t.label)
		}
		v.keys = append(v.keys, t.need...)
	}
	slices.Sort(v.keys)
	v.keys = slices.Compact(v.keys)
	for i := range v.groups {
		v.groups[i].key = v.keyOf(v.groups[i].t.label)
	}
}

// findDims lists the places on the axis that some pending pod asks for.
func (v *solver) findDims() {
	used := make([]bool, v.s.order.width)
	for i := range v.batches {
		for d, q := range v.batches[i].spec.demand {
			if q > 0 {
				used[d] = true
			}
		}
	}
	for d, u := range used {
		if u {
			v.dims = append(v.dims, int32(d))
		}
	}
	names := v.s.axis.names
	slices.SortFunc(v.dims, func(a, b int32) int { return cmp.Compare(names[a], names[b]) })
}

// groupOf returns the number of a tally's group.
func (v *solver) groupOf(t *tally) int32 {
	if g, ok := v.groupIDs[t]; ok {
		return g
	}
	g := int32(len(v.groups))
	v.groupIDs[t] = g
	gr := group{t: t, key: -1, total: t.total}
	if t.byNode != nil {
		gr.byNode = map[int32]int32{}
	} else {
		gr.counts = slices.Clone(t.counts)
	}
	v.groups = append(v.groups, gr)
	return g
}

// keyOf returns the number of a topology label, a negative one for what differs
// on every node.
func (v *solver) keyOf(label string) int32 {
	switch label {
	case LabelHostname:
		return -1
	case thisNode:
		return -2
	}
	return int32(slices.Index(v.keys, label))
}

// counted lists the groups that a pod of the batch is counted in.
func (v *solver) counted(b *batch) []int32 {
	var out []int32
	for _, sel := range b.class.in {
		for _, t := range sel.counts {
			if g, ok := v.groupIDs[t]; ok {
				out = append(out, g)
			}
		}
	}
	for _, t := range b.spec.marks {
		if g, ok := v.groupIDs[t]; ok {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// repelling lists the tallies of pods that keep pods of the batch away.
func (v *solver) repelling(b *batch) []*tally {
	var out []*tally
	for _, sel := range b.class.in {
		out = append(out, sel.repels...)
	}
	for _, p := range b.spec.src.HostPorts {
		for _, t := range v.s.ports[p.Port] {
			if p.conflicts(t.port) {
				out = append(out, t)
			}
		}
	}
	return out
}

// repelled lists the groups of pods that repel a pod of the batch or bind a port
// that it needs.
func (v *solver) repelled(b *batch) []int32 {
	var out []int32
	for _, t := range v.repelling(b) {
		out = append(out, v.groupIDs[t])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mergeBatches joins batches that differ in labels to which no constraint pays
// heed, and puts all into the order in which they are placed: by priority, then
// the most demanding first.
func (v *solver) mergeBatches() {
	s := v.s
	type id struct {
		spec     *spec
		priority int32
		part     string
	}
	index := map[id]int{}
	merged := v.batches[:0]
	var buf []byte
	for _, b := range v.batches {
		buf = buf[:0]
		// Under its own namespace a term without one may mean another set of pods.
		b.adds, b.repelled = v.counted(&b), v.repelled(&b)
		for _, g := range b.adds {
			buf = binary.AppendVarint(buf, int64(g))
		}
		buf = append(buf, 0xff)
		for _, g := range b.repelled {
			buf = binary.AppendVarint(buf, int64(g))
		}
		k := id{b.spec, b.priority, string(buf)}
		if i, ok := index[k]; ok {
			merged[i].pods = append(merged[i].pods, b.pods...)
			continue
		}
		index[k] = len(merged)
		merged = append(merged, b)
	}
	v.batches = merged
	for i := range v.batches {
		b := &v.batches[i]
		slices.SortFunc(b.pods, func(p, q int32) int { return cmp.Compare(s.pods[p].name, s.pods[q].name) })
	}
}
