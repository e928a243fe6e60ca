package pack

import (
	"cmp"
	"math"
	"slices"
)

// mix packs the bins' pods by the cheapest fractional mix of fillings: as many
// whole nodes of each as the mix has, and what is left over as repacking would. It
// takes the result if it is cheaper.
func (v *solver) mix() {
	p := v.packer
	weights := v.weightsOfMovable()
	for _, w := range weights {
		rows := v.lotRows(w)
		if len(rows) == 0 || len(rows) > maxRows {
			continue
		}
		m := v.newMaster(rows, unlimited)
		v.learnFillings(m, w)
		m.generate(v.o.Work*sacksPerRound, v.o.Stop)
		before := v.release(w)
		if !p.fromMix(m, w) || p.spent >= before {
			for i := range p.out {
				v.budget.take(v, p.out[i].entry, -1)
			}
			v.retake(w)
			continue
		}
		keep := v.bins[:0]
		for i := range v.bins {
			if b := &v.bins[i]; !v.movable(b) || v.weightOf(b.entry) != w {
				keep = append(keep, *b)
			}
		}
		v.bins = append(keep, p.out...)
		p.out = nil
	}
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
	type use struct {
		fill int32
		n    float64
	}
	var uses []use
	for i, f := range m.basis {
		if f >= 0 && m.x[i] > 1e-3 {
			uses = append(uses, use{f, m.x[i]})
		}
	}
	slices.SortFunc(uses, func(a, b use) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.fill, b.fill)) })
	for _, u := range uses {
		whole := int(math.Floor(u.n + 1e-3))
		for range whole {
			f := &m.fills[u.fill]
			p.best.entry, p.best.worth, p.best.parts = f.entry, 0, p.best.parts[:0]
			if !v.budget.room(v, f.entry, nowhere) || !p.assemble(m, f, lots) {
				break
			}
			p.emit()
		}
	}
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
		return v.budget.enough(v, v.menu.breeds[v.menu.entries[f.entry].breed].pool, nil, nil, p.load, none)
	}
	return true
}
