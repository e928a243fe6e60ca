package pack

import (
	"cmp"
	"maps"
	"slices"
)

// solver is a solution being made. Its memory is kept from one to the next.
//
//	gather    pods ─► batches of equal ones, tallies ─► groups
//	compile   batches ─► kinds: demand, filter, checks, buckets
//	place     kinds ─► existing nodes, then bins: first fit, the largest first
//	repack    bins ─► cheaper bins, domains and existing nodes left as they are
//	report    bins ─► plan
type solver struct {
	s     *State
	o     Options
	space *space
	menu  *menu

	dims     []int32
	batches  []batch
	kinds    []kind
	groups   []group
	groupIDs map[*tally]int32
	keys     []string
	filters  []int32
	schemes  map[string]*scheme
	order    []int32 // batches, in the order in which they are placed

	// boundRates are those that prove the best bound, rates the ones that steer the
	// search, see menu.lean; remaining is the demand for which no node is open yet;
	// least is the smallest demand of any batch, by dimension.
	rates, boundRates, remaining, least []int64

	// templates are the kinds that ask for the same and may be in the same breeds, as
	// charges without pods.
	templates []charge

	bins   []bin
	active []int32 // bins that may take more
	// perBreed counts the bins opened by breed.
	perBreed []int32
	resumed  int    // batches begun
	shut     bitset // nodes that take no more
	shutAny  bool
	onNodes  []onNode
	budget   budget
	// start means that pods may be the first of those that they ask for, see
	// startsNow; lax that caps are not minded, see group.
	start, lax bool
	// leaned says that some pod has its place by a last resort of place.
	leaned bool
	// real means that domains without nodes no longer count, see startReal.
	real bool
	// only are the breeds that nodes are confined to, nil for all.
	only   bitset
	packer *packer
	// most caps the new nodes of pools, see solve.
	most map[int32]int64
	// lower is the bound once it is known, else negative. What pods are on new nodes
	// is settled when it is first asked for.
	lower int64
	// relaxed is the master problem that gave it, if one did, and relaxedRow the row
	// of each kind in it.
	relaxed    *master
	relaxedRow []int32
	// While improving: the bins that may be taken apart, those that are, how they
	// were filled, and copies of what came of them.
	mobile, taken []int32
	prints        []uint64
	copies        []bin
	// way is how placing departs from the usual, see retry.
	way way
	// everything is the space with every offering available, for explanations.
	everything *space

	// shortlists are the entries worth trying, by set of breeds.
	shortlists map[string]*shortlist

	list  []int32
	buf   []byte
	tried []int32
}

// bin is a node to open while it is being filled.
type bin struct {
	// entry is what the node is meant to become; it fits the load.
	entry int32
	// breeds are those that suit all that is in the bin.
	breeds bitset
	load   []int64
	// local are the counts of groups by node, for this one.
	local []localCount
	parts []part
}

// localCount is how many pods of a group are in a bin, and how many may be.
type localCount struct{ group, n, most int32 }

// part is n pods of a kind that share a bin, in a bucket of the kind's scheme.
type part struct{ kind, bucket, n int32 }

// onNode is n pods of a kind put on an existing node.
type onNode struct{ kind, bucket, node, n int32 }

func newSolver(s *State, o Options, sp *space, shut bitset) *solver {
	return &solver{s: s, o: o, space: sp, shut: shut, shutAny: !shut.empty(), lower: -1, groupIDs: map[*tally]int32{}, schemes: map[string]*scheme{}, shortlists: map[string]*shortlist{}}
}

// solve places the pods and makes the new nodes cheap. The solver that it returns
// has the solution; the state's nodes are as it leaves them until undo.
func (v *solver) solve(pods []int32) *solver {
	v = v.search(pods)
	// Nodes are opened as if each alone were to have the types that minValues ask for
	// within what the limits leave. Where they can't all have them there are fewer.
	for most := v.lessThanUnmet(); most != nil; most = v.lessThanUnmet() {
		u := newSolver(v.s, v.o, v.space, v.shut)
		u.most = most
		v.undo()
		v = u.search(pods)
	}
	return v
}

// lessThanUnmet returns how many new nodes pools may have, if of some pool not all
// have the types that its minValues ask for, else nil.
func (v *solver) lessThanUnmet() map[int32]int64 {
	if !v.budget.strict {
		return nil
	}
	v.rightSize()
	w := writer{v: v}
	left := slices.Clone(v.budget.left)
	good, all := map[int32]int64{}, map[int32]int64{}
	for _, i := range v.binOrder() {
		b := &v.bins[i]
		pool := v.menu.breeds[v.menu.entries[b.entry].breed].pool
		w.write(b)
		all[pool]++
		if !w.unmet {
			good[pool]++
		}
	}
	v.budget.left = left
	less := maps.Clone(v.most)
	changed := false
	for pool, n := range all {
		if good[pool] < n {
			if less == nil {
				less = map[int32]int64{}
			}
			less[pool], changed = good[pool], true
		}
	}
	if !changed {
		return nil
	}
	return less
}

// search makes a solution in which the caps hold.
func (v *solver) search(pods []int32) *solver {
	v.begin(pods)
	v.place()
	v = v.retry(pods)
	v.rightSize()
	v = v.reuse(pods)
	v.repack()
	v = v.relent(pods)
	// Nodes that are packed better may leave more of a limit.
	if v.placeRest() {
		v.repack()
	}
	if v.o.Work > 0 && !v.near(v.bound()) {
		v.mix()
		v.improve()
	}
	return v
}

// stopped reports whether the time is up: what is there then is the plan.
func (v *solver) stopped() bool { return v.o.Stop != nil && v.o.Stop() }

// placeRest tries to place the pods that are left once more, and reports whether
// it placed any.
func (v *solver) placeRest() bool {
	some := false
	for i := range v.batches {
		b := &v.batches[i]
		if b.placed < len(b.pods) {
			before := b.placed
			if !some {
				v.active = v.active[:0]
				for j := range v.bins {
					v.active = append(v.active, int32(j))
				}
			}
			v.placeBatch(b)
			some = some || b.placed > before
		}
	}
	return some
}

// begin makes batches and kinds of the pods and puts them in order.
func (v *solver) begin(pods []int32) {
	v.gather(pods)
	v.menu = v.s.menuFor(v.space, v.filters, v.keys, v.dims)
	v.compile()
	v.bindCliques()
	v.findCharges()
	v.weigh()
	v.budget.init(v)
}

// undo gives back what was taken on existing nodes.
func (v *solver) undo() {
	for _, on := range v.onNodes {
		room := v.s.room(on.node)
		for d, q := range v.kinds[on.kind].full {
			room[d] += int64(on.n) * q
		}
	}
}

// redo takes it again.
func (v *solver) redo() {
	for _, on := range v.onNodes {
		room := v.s.room(on.node)
		for d, q := range v.kinds[on.kind].full {
			room[d] -= int64(on.n) * q
		}
	}
}

// weigh finds the rates and the order in which batches are placed.
func (v *solver) weigh() {
	v.remaining = make([]int64, v.menu.dims)
	v.least = make([]int64, v.menu.dims)
	for d := range v.least {
		v.least[d] = unlimited
	}
	for i := range v.batches {
		b := &v.batches[i]
		for d, q := range v.kinds[b.first].demand {
			v.remaining[d] += q * int64(len(b.pods))
			v.least[d] = min(v.least[d], q)
		}
	}
	v.boundRates = v.findRates(v.charges(func(k int32) int64 {
		b := &v.batches[v.kinds[k].batch]
		if k == b.first && !v.weighs(b) || k == b.last-1 && v.weighs(b) {
			return int64(len(b.pods))
		}
		return 0
	}), 0)
	v.dropCliques()
	v.rates = v.boundRates
	if v.menu.cliques != nil {
		v.rates = v.menu.lean(v.boundRates, v.remaining)
	}
	for i := range v.kinds {
		v.kinds[i].worth = worthOf(v.kinds[i].demand, v.rates)
	}
	for i := range v.batches {
		v.batches[i].size = v.kinds[v.batches[i].first].worth
		v.order = append(v.order, int32(i))
	}
	slices.SortFunc(v.order, func(i, j int32) int {
		a, b := &v.batches[i], &v.batches[j]
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(v.rank(i), v.rank(j)), cmp.Compare(b.size, a.size),
			cmp.Compare(v.s.pods[a.pods[0]].name, v.s.pods[b.pods[0]].name))
	})
}

// place puts every pod somewhere if it can. What one pod found no place for may
// have one once others are placed, so that rounds go on while any succeeds; then
// the rules of our own that go beyond the scheduler's are given up one by one.
func (v *solver) place() {
	v.start, v.lax, v.leaned = v.way.loose, v.way.loose, v.way.loose
	if !v.rounds() {
		return
	}
	// Pods that ask for pods like themselves: one at a time may be the first.
	for v.startOne() {
		if !v.rounds() {
			return
		}
	}
	v.rightSize()
	if !v.rounds() {
		return
	}
	v.lax, v.start = true, true
	before := v.placedAll()
	left := v.rounds()
	v.leaned = v.leaned || v.placedAll() > before
	if !left {
		return
	}
	if v.startReal() {
		before := v.placedAll()
		v.rounds()
		if v.placedAll() > before {
			v.leaned = true
			v.stayReal()
		} else {
			// What is packed anew after this goes by the domains that there may be.
			v.setReal(false)
		}
	}
}

// placedAll counts the pods that are placed.
func (v *solver) placedAll() int {
	n := 0
	for i := range v.batches {
		n += v.batches[i].placed
	}
	return n
}

// rounds places batches until none makes progress and reports whether pods are
// left.
func (v *solver) rounds() bool {
	for {
		progress, left := false, false
		for _, i := range v.order {
			b := &v.batches[i]
			if b.placed == len(b.pods) {
				continue
			}
			before := b.placed
			v.placeBatch(b)
			progress = progress || b.placed > before
			left = left || b.placed < len(b.pods)
		}
		if !left || !progress {
			return left
		}
	}
}

// startOne lets one pod be the first of those that it asks for and reports
// whether there was one.
func (v *solver) startOne() bool {
	v.start = true
	defer func() { v.start = false }()
	for _, i := range v.order {
		b := &v.batches[i]
		if b.placed == len(b.pods) || len(v.kinds[b.first].attract) == 0 {
			continue
		}
		v.resume(b)
		if n := v.placeSome(b, 1); n > 0 {
			b.placed += int(n)
			return true
		}
	}
	return false
}

// resume starts the search for places of a batch anew.
func (v *solver) resume(b *batch) {
	for k := b.first; k < b.last; k++ {
		kd := &v.kinds[k]
		kd.cursors = slices.Grow(kd.cursors[:0], len(kd.scheme.buckets))[:len(kd.scheme.buckets)]
		for i := range kd.cursors {
			kd.cursors[i] = cursor{pick: -1}
		}
	}
	if v.resumed++; v.resumed%compactEvery == 0 {
		v.compact()
	}
}

// compactEvery is how many batches are placed before full bins are dropped from
// those that are searched.
const compactEvery = 16

// placeBatch places as many pods of a batch as it can.
func (v *solver) placeBatch(b *batch) {
	v.resume(b)
	for b.placed < len(b.pods) {
		n := v.placeSome(b, int32(len(b.pods)-b.placed))
		if n == 0 {
			return
		}
		b.placed += int(n)
	}
}

// compact drops the bins that are too full for anything.
func (v *solver) compact() {
	keep := v.active[:0]
	for _, i := range v.active {
		if v.menu.fitsSum(v.bins[i].entry, v.bins[i].load, v.least) {
			keep = append(keep, i)
		}
	}
	v.active = keep
}

// placeSome places up to most pods of a batch in one place and returns how many.
func (v *solver) placeSome(b *batch, most int32) int32 {
	if !v.priced(b) || b.last == b.first+1 || v.way.relent {
		first := b.first
		if v.way.relent && v.weighs(b) {
			first = b.last - 1
		}
		for k := first; k < b.last; k++ {
			if n := v.put(k, most); n > 0 {
				return n
			}
		}
		return 0
	}
	// Room that is there costs what its resources are worth; a new node costs what
	// it does. Either way, what a form gives up comes on top.
	best, least, isNew := int32(-1), int64(0), false
	consider := func(k int32, cost int64, opens bool) {
		if cost += v.kinds[k].lost * v.o.WeightMicroUSD; best < 0 || cost < least {
			best, least, isNew = k, cost, opens
		}
	}
	for k := b.first; k < b.last; k++ {
		if v.peek(k) {
			consider(k, v.kinds[k].worth, false)
			break // later forms give up more
		}
	}
	heaviest := v.heaviest(b)
	for k := b.first; k < b.last; k++ {
		if e := v.cheapest(k); e >= 0 && v.mayOpen(k, heaviest) {
			consider(k, v.menu.entries[e].price, true)
		}
	}
	if best >= 0 {
		if isNew {
			if n := v.inNew(best, most); n > 0 {
				return n
			}
		} else if n := v.put(best, most); n > 0 {
			return n
		}
	}
	for k := b.first; k < b.last; k++ {
		if n := v.put(k, most); n > 0 {
			return n
		}
	}
	for k := b.first; k < b.last; k++ {
		if n := v.grow(k); n > 0 {
			return n
		}
	}
	return 0
}

// put places pods of a kind on existing nodes, else in bins, else in a new one,
// else in a bin that has to grow for it.
func (v *solver) put(k, most int32) int32 {
	if v.way.fresh {
		if n := v.inNew(k, most); n > 0 {
			return n
		}
	}
	if n := v.onNode(k, most); n > 0 {
		return n
	}
	if n := v.inBin(k, most); n > 0 {
		return n
	}
	if n := v.inNew(k, most); n > 0 {
		return n
	}
	return v.grow(k)
}
