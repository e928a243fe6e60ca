package pack

import (
	"cmp"
	"math"
	"slices"
)

// mix packs the bins' pods by the cheapest fractional mix of fillings: as many
// whole nodes of each as the mix has, then the mix of what is left, and so on. It
// takes the result if it is cheaper.
//
// Large types are often cheapest by a little, but a mix of few large nodes loses
// more when it is made whole. Therefore it is tried again with nodes that cost no
// more than some part of the plan.
func (v *solver) mix() {
	weights := v.weightsOfMovable()
	for _, w := range weights {
		rows := v.lotRows(w)
		if len(rows) == 0 || len(rows) > maxMixed {
			continue
		}
		m := v.newMaster(rows, unlimited)
		v.learnFillings(m, w)
		m.translate()
		counts := make([]int64, len(rows))
		for i := range rows {
			counts[i] = rows[i].count
		}
		for n, part := range [...]float64{0, 8, 20, 50} {
			m.most = math.Inf(1)
			if n > 0 {
				m.most = float64(v.price()) / part
			}
			for i := range rows {
				rows[i].count = counts[i]
			}
			m.restart()
			m.generate(v.o.Work*sacksPerRound/2, v.o.Stop)
			if n == 0 && len(weights) == 1 && v.unpinned(rows) {
				m.certify()
				v.lower = max(v.lower, min(m.bound(), v.price()))
			}
			v.adopt(m, w)
			if v.near(v.bound()) || v.stopped() {
				break
			}
		}
	}
}

// maxMixed is the number of lots up to which their mix is sought. It is solved
// many times over while it is made whole.
const maxMixed = 80

// adopt makes a master problem's mix whole and takes it if it is cheaper.
func (v *solver) adopt(m *master, weight int) {
	p := v.packer
	before := v.release(weight)
	if !p.fromMix(m, weight) || p.spent >= before {
		for i := range p.out {
			v.budget.take(v, p.out[i].entry, -1)
		}
		v.retake(weight)
		return
	}
	keep := v.bins[:0]
	for i := range v.bins {
		if b := &v.bins[i]; !v.movable(b) || v.weightOf(b.entry) != weight {
			keep = append(keep, *b)
		}
	}
	v.bins = append(keep, p.out...)
	p.out = nil
}

// unpinned reports whether rows are all pods on new nodes, free to be in any breed
// that suits them, so that a bound for the rows is one for the plan.
func (v *solver) unpinned(rows []need) bool {
	for i := range v.bins {
		if len(v.bins[i].parts) > 0 && !v.movable(&v.bins[i]) {
			return false
		}
	}
	for i := range rows {
		k := rows[i].kind
		b := &v.batches[v.kinds[k].batch]
		if v.weighs(b) && k != b.last-1 || !slices.Equal(rows[i].breeds, v.kinds[k].scheme.breeds) {
			return false
		}
	}
	return len(v.inReservations()) == 0
}

// weightsOfMovable lists the weights of the pools of bins that may be taken apart,
// the heaviest first.
func (v *solver) weightsOfMovable() []int {
	var weights []int
	for i := range v.bins {
		if b := &v.bins[i]; v.movable(b) {
			weights = append(weights, v.weightOf(b.entry))
		}
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	slices.Reverse(weights)
	return weights
}

// release gives back what the movable bins of a weight have taken, and returns
// what they cost.
func (v *solver) release(weight int) int64 {
	cost := int64(0)
	for i := range v.bins {
		if b := &v.bins[i]; v.movable(b) && v.weightOf(b.entry) == weight {
			cost += v.menu.entries[b.entry].price
			v.budget.take(v, b.entry, -1)
		}
	}
	return cost
}

// retake undoes release.
func (v *solver) retake(weight int) {
	for i := range v.bins {
		if b := &v.bins[i]; v.movable(b) && v.weightOf(b.entry) == weight {
			v.budget.take(v, b.entry, 1)
		}
	}
}

// lotRows lists the lots of the movable bins of a weight as rows.
func (v *solver) lotRows(weight int) []need {
	index := map[[2]int32]int{}
	var rows []need
	for i := range v.bins {
		b := &v.bins[i]
		if !v.movable(b) || v.weightOf(b.entry) != weight {
			continue
		}
		for _, pt := range b.parts {
			id := [2]int32{pt.kind, pt.bucket}
			at, ok := index[id]
			if !ok {
				k := &v.kinds[pt.kind]
				at = len(rows)
				index[id] = at
				breeds := slices.Clone(k.scheme.buckets[pt.bucket].breeds)
				for j := breeds.next(0); j >= 0; j = breeds.next(j + 1) {
					if v.weight(v.menu.breeds[j].pool) != weight {
						breeds.clear(j)
					}
				}
				rows = append(rows, need{demand: k.demand, amount: amounts(k.demand), breeds: breeds, kind: pt.kind, bucket: pt.bucket})
			}
			rows[at].count += int64(pt.n)
		}
	}
	slices.SortFunc(rows, func(a, b need) int {
		return cmp.Or(cmp.Compare(v.kinds[b.kind].worth, v.kinds[a.kind].worth), cmp.Compare(a.kind, b.kind), cmp.Compare(a.bucket, b.bucket))
	})
	return rows
}

// learnFillings starts the master problem off with the fillings that there are.
func (v *solver) learnFillings(m *master, weight int) {
	at := map[[2]int32]int32{}
	for i := range m.rows {
		at[[2]int32{m.rows[i].kind, m.rows[i].bucket}] = int32(i)
	}
	m.learn(func(b *bin) bool { return v.movable(b) && v.weightOf(b.entry) == weight }, func(pt part) int32 { return at[[2]int32{pt.kind, pt.bucket}] })
}

// translate adds the fillings that the relaxed problem found good, with pods of
// the same kinds and an entry like theirs, for each set of breeds that some rows
// are confined to: what is a good node in one zone is so in another.
func (m *master) translate() {
	v := m.v
	from := v.relaxed
	if from == nil {
		return
	}
	var confined []bitset
	for i := range m.rows {
		if !slices.ContainsFunc(confined, func(b bitset) bool { return slices.Equal(b, m.rows[i].breeds) }) {
			confined = append(confined, m.rows[i].breeds)
		}
	}
	from.prices()
	for _, breeds := range confined {
		// The row of each relaxed row's pods, in these breeds if there is one.
		rowOf := make([]int32, len(from.rows))
		for i := range rowOf {
			rowOf[i] = -1
		}
		for i := range m.rows {
			r := v.relaxedRow[m.rows[i].kind]
			if own := slices.Equal(m.rows[i].breeds, breeds); own || rowOf[r] < 0 && m.rows[i].breeds.meets(breeds) {
				rowOf[r] = int32(i)
			}
		}
		for f := range from.fills {
			if from.reduced(int32(f)) > translateWithin {
				continue
			}
			e := v.likeness(from.fills[f].entry, breeds)
			if e < 0 {
				continue
			}
			to := filling{entry: e}
			for _, p := range from.fills[f].parts {
				if r := rowOf[p.row]; r >= 0 && m.rows[r].breeds.has(int(v.menu.entries[e].breed)) {
					to.parts = append(to.parts, rowCount{r, p.n})
				}
			}
			if len(to.parts) > 0 {
				m.fills = append(m.fills, to)
			}
		}
	}
}

// translateWithin is how much of their price fillings may be short of being in
// the relaxed mix and still be passed on.
const translateWithin = 0.01

// likeness returns the cheapest entry in some breeds with as much room as another
// entry, or -1.
func (v *solver) likeness(e int32, breeds bitset) int32 {
	m := v.menu
	best := int32(-1)
	for b := breeds.next(0); b >= 0; b = breeds.next(b + 1) {
		br := &m.breeds[b]
		for o := br.first; o < br.last && br.reservation < 0; o++ {
			if (best < 0 || m.entries[o].price < m.entries[best].price) && covers(m.at(o), m.at(e)) {
				best = o
			}
		}
	}
	return best
}

// learn adds the fillings of bins, each once.
func (m *master) learn(which func(*bin) bool, rowOf func(part) int32) {
	v := m.v
	seen := map[uint64]bool{}
	for i := range v.bins {
		b := &v.bins[i]
		if len(b.parts) == 0 || v.menu.breeds[v.menu.entries[b.entry].breed].reservation >= 0 || !which(b) {
			continue
		}
		id := b.print()
		if seen[id] {
			continue
		}
		seen[id] = true
		f := filling{entry: b.entry}
		for _, pt := range b.parts {
			row := rowOf(pt)
			if n := slices.IndexFunc(f.parts, func(p rowCount) bool { return p.row == row }); n >= 0 {
				f.parts[n].n += int64(pt.n)
			} else {
				f.parts = append(f.parts, rowCount{row, int64(pt.n)})
			}
		}
		m.fills = append(m.fills, f)
	}
}

// fromMix packs all rows of a master problem that is solved.
func (p *packer) fromMix(m *master, weight int) bool {
	v := p.v
	p.begin()
	for i := range m.rows {
		r := &m.rows[i]
		p.put(r.kind, r.bucket, int32(r.count))
	}
	p.merge()
	lots := map[[2]int32]int32{}
	for i := range p.lots {
		lots[[2]int32{p.lots[i].kind, p.lots[i].bucket}] = int32(i)
	}
	most := m.most
	effort := v.o.Work * sacksPerRound
	for p.dive(m, lots, weight) && effort > 0 {
		left := 0.0
		for i := range m.rows {
			r := &m.rows[i]
			r.count = int64(p.lots[lots[[2]int32{r.kind, r.bucket}]].left)
			left += float64(m.dual[i] * float64(r.count))
		}
		// A node that costs more than all that is left is worth is no part of its mix.
		m.most = min(most, left*1.01)
		m.restart()
		once := min(sacksPerDive, effort)
		effort -= once - m.generate(once, v.o.Stop)
	}
	// What did not fit into the dive, as for limits, is packed as ever.
	p.thorough = true
	ok := p.pack(weight)
	p.thorough = false
	p.spent = 0
	for i := range p.out {
		b := &p.out[i]
		if e := v.cheapestFor(b); ok && e != b.entry {
			v.retarget(b, e)
		}
		p.spent += v.menu.entries[b.entry].price
	}
	return ok
}

// sacksPerDive is how many knapsacks are solved anew for what is left.
const sacksPerDive = 60

// dive opens as many whole nodes of each filling as the mix has or, where it has
// only fractions, one of the largest. It reports whether it opened any.
func (p *packer) dive(m *master, lots map[[2]int32]int32, weight int) bool {
	opened, best := false, -1
	for i, f := range m.basis {
		if f < 0 {
			continue
		}
		if best < 0 || m.x[i] > m.x[best] || m.x[i] == m.x[best] && f < m.basis[best] {
			best = i
		}
		for range int(math.Floor(m.x[i] + 1e-3)) {
			if p.openFilling(m, &m.fills[f], lots, weight) {
				opened = true
			}
		}
	}
	if !opened && best >= 0 && m.x[best] > 1e-3 {
		opened = p.openFilling(m, &m.fills[m.basis[best]], lots, weight)
		for i, f := range m.basis {
			// With many lots, others that are nearly whole go along.
			if f >= 0 && i != best && m.x[i] > 0.8 && len(m.rows) > 40 {
				p.openFilling(m, &m.fills[f], lots, weight)
			}
		}
	}
	return opened
}

// openFilling makes a bin of a filling, as far as its pods are left.
func (p *packer) openFilling(m *master, f *filling, lots map[[2]int32]int32, weight int) bool {
	v := p.v
	p.best.entry, p.best.worth, p.best.parts = f.entry, 0, p.best.parts[:0]
	if v.weightOf(f.entry) != weight || !v.budget.room(v, f.entry, nowhere) || !p.assemble(m, f, lots) {
		return false
	}
	p.emit()
	return true
}

// assemble makes a filling the best pattern, as far as pods are left and what is
// checked by node allows, and reports whether anything is in it.
func (p *packer) assemble(m *master, f *filling, lots map[[2]int32]int32) bool {
	v := p.v
	clear(p.load)
	p.bin.entry, p.bin.local = f.entry, p.bin.local[:0]
	for _, pt := range f.parts {
		r := &m.rows[pt.row]
		li := lots[[2]int32{r.kind, r.bucket}]
		l := &p.lots[li]
		k := &v.kinds[r.kind]
		n := int32(min(pt.n, int64(l.left)))
		if k.local {
			for i := range n {
				if !v.localInBin(k, &p.bin) {
					n = i
					break
				}
				v.countLocal(&p.bin, k, r.bucket, 1)
			}
		}
		if n == 0 {
			continue
		}
		for d, q := range k.demand {
			p.load[d] += int64(n) * q
		}
		p.best.parts = append(p.best.parts, part{li, r.bucket, n})
	}
	if len(p.best.parts) == 0 {
		return false
	}
	if !v.budget.free(v, &p.bin) {
		none := make([]int64, len(p.load))
		return v.budget.enough(v, v.menu.entries[f.entry].breed, nowhere, p.breedsOf(&p.best), nil, p.load, none)
	}
	return true
}
