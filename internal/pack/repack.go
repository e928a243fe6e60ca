package pack

import (
	"math"
	"slices"
)

// Repacking opens nodes one at a time and asks of each: which entry, filled with
// which of the pods that are left, wastes least of its price?
//
//	seed     the most valuable pod left, for it has to go somewhere
//	entries  a few of each size that take the seed, the best rate first
//	fill     for each: add the size of pods that points most where room is left
//	choose   the entry whose pods are worth most for its price; as often as the
//	         pods last
//
// Pods keep the bucket that the greedy search chose, so that what topology counts
// by zone and the like stays as it is; what it counts by node is checked while
// filling. Bins with pods that ask for company by node are left alone.

// batchShare is the part of what fits that is added at a time. One pod at a time
// would mix best and take long in the largest types; a sixteenth was measured to
// cost nothing in price.
const batchShare = 16

// pack packs all lots and reports whether it could.
func (p *packer) pack(weight int) bool {
	for {
		seed := p.seed()
		if seed < 0 {
			return true
		}
		if !p.open(seed, weight) || p.limit > 0 && p.spent >= p.limit {
			return false
		}
	}
}

// seed returns a lot of the most valuable size left, or -1.
func (p *packer) seed() int32 {
	for i := range p.sizes {
		s := &p.sizes[i]
		if s.left == 0 {
			continue
		}
		for _, l := range s.lots {
			if p.lots[l].left > 0 {
				return l
			}
		}
	}
	return -1
}

// open fills the best bin for a seed and takes it as often as the pods last.
func (p *packer) open(seed int32, weight int) bool {
	v := p.v
	p.best.entry = -1
	l := &p.lots[seed]
	list := v.shortlist(l.breeds)
	// When time is up the best of the favourites has to do.
	hasty := p.limit == 0 && len(list.favourites) > 0 && v.stopped()
	switch {
	case hasty:
		p.consider(list.favourites[len(list.favourites)-1], seed, weight)
	case p.limit == 0 && !p.thorough && len(list.favourites) > 0 && list.age < favouritesLast:
		list.age++
		for _, e := range list.favourites {
			p.consider(e, seed, weight)
		}
	}
	// They are not good enough if they waste more than the best of all did.
	if p.best.entry < 0 || p.limit == 0 && !hasty && p.rate() < list.rate*(1-favouritesFall) {
		list.age, list.favourites = 0, list.favourites[:0]
		for _, e := range list.entries {
			// An entry that takes all that is left may still turn out to be a smaller one.
			if p.limit > 0 && (p.noise.below(3) == 0 || p.spent+v.menu.entries[e].price >= p.limit && !covers(v.menu.at(e), p.demand)) {
				continue
			}
			if p.consider(e, seed, weight) && p.limit == 0 {
				list.favour(e)
			}
		}
		if p.limit == 0 && p.best.entry >= 0 {
			list.rate = p.rate()
		}
	}
	if p.best.entry < 0 {
		// Nothing on the list takes it: try all.
		for b := l.breeds.next(0); b >= 0; b = l.breeds.next(b + 1) {
			br := &v.menu.breeds[b]
			for e := br.first; e < br.last; e++ {
				p.consider(e, seed, weight)
			}
		}
	}
	if p.best.entry < 0 {
		return false
	}
	times := int32(1 << 30)
	for _, part := range p.best.parts {
		times = min(times, p.lots[part.kind].left/part.n)
	}
	for i := range times {
		if i > 0 && !v.budget.room(v, p.best.entry, nowhere) {
			break
		}
		p.emit()
	}
	return true
}

// consider fills an entry, if it takes the seed and can be had, and reports
// whether it is the best so far.
func (p *packer) consider(e, seed int32, weight int) bool {
	v := p.v
	if v.weightOf(e) != weight || !v.menu.fits(e, v.kinds[p.lots[seed].kind].demand) || !v.budget.room(v, e, nowhere) {
		return false
	}
	p.fill(e, seed)
	p.shrink()
	if p.best.entry >= 0 && !p.wastesLess(&p.trial, &p.best) {
		return false
	}
	p.trial, p.best = p.best, p.trial
	return true
}

// shrink makes the trial's entry the cheapest of its breed that holds its load, if
// the trial has all pods that are left; else what room it has was no use to them.
func (p *packer) shrink() {
	m := p.v.menu
	for d, q := range p.load {
		if q < p.demand[d] {
			return
		}
	}
	br := &m.breeds[m.entries[p.trial.entry].breed]
	for e := br.first; e < br.last && m.entries[e].price < m.entries[p.trial.entry].price; e++ {
		if m.fits(e, p.load) && p.v.budget.room(p.v, e, nowhere) {
			p.trial.entry = e
			return
		}
	}
}

// rate is what the best pattern's pods are worth for its price.
func (p *packer) rate() float64 {
	return float64(p.best.worth) / float64(max(p.v.menu.entries[p.best.entry].price, 1))
}

// wastesLess reports whether a's pods are worth more for its price than b's.
func (p *packer) wastesLess(a, b *pattern) bool {
	pa, pb := max(p.v.menu.entries[a.entry].price, 1), max(p.v.menu.entries[b.entry].price, 1)
	return less(b.worth, pb, a.worth, pa)
}

// fill makes trial the pattern of an entry that has the seed in it.
func (p *packer) fill(e, seed int32) {
	v := p.v
	for d := range p.load {
		p.load[d] = 0
	}
	p.bin.entry, p.bin.local = e, p.bin.local[:0]
	p.trial.entry, p.trial.worth, p.trial.parts = e, 0, p.trial.parts[:0]
	p.join(seed, 1)
	room := v.menu.at(e)
	p.aim(room)
	p.list(int(v.menu.entries[e].breed))
	shares := max(1, len(p.listed)/mostLive)
	for share := range shares {
		p.live = p.live[:0]
		for i := (len(p.out) + share) % shares; i < len(p.listed); i += shares {
			p.live = append(p.live, p.listed[i])
		}
		for best := p.pointing(room); best >= 0; best = p.pointing(room) {
			if li, n := p.candidate(best, e); li >= 0 {
				p.join(li, n)
			}
		}
	}
	for _, part := range p.trial.parts {
		l := &p.lots[part.kind]
		l.taken = 0
		p.sizes[l.size].left += part.n
	}
}

// mostLive is about how many sizes are looked at for each pod that joins. With more,
// the first pods come from a share of them, evenly from the large to the small, and
// what is still free goes to the rest: else the time would grow with the square of the
// number of sizes.
const mostLive = 256

// list lists the sizes of which pods are left that may be in a breed.
func (p *packer) list(breed int) {
	p.listed = p.listed[:0]
	for i := range p.sizes {
		s := &p.sizes[i]
		if s.left == 0 {
			continue
		}
		s.next = 0
		for _, li := range s.lots {
			if l := &p.lots[li]; l.left > l.taken && l.breeds.has(breed) {
				p.listed = append(p.listed, int32(i))
				break
			}
		}
	}
}

// aim sets the load to be reached: all room of the resources that cost money,
// and of the others as much as keeps what is left in proportion. Without the
// latter, early bins would take what few pods need little of and late ones could
// not use what they pay for.
func (p *packer) aim(room []int64) {
	share := 0.0
	for d, q := range p.demand {
		if p.v.rates[d] > 0 && q > 0 {
			share = max(share, float64(room[d])/float64(q))
		}
	}
	for d, q := range p.demand {
		p.target[d] = max(float64(room[d]), 1)
		if p.v.rates[d] == 0 {
			p.target[d] = max(min(p.target[d], float64(share*float64(q))), 1)
		}
		if p.noise != 0 {
			p.target[d] *= p.noise.factor(0.2)
		}
	}
}

// pointing returns the size that fits and points most towards the load that is
// aimed at, or -1. Sizes of which no pod can join any more leave the list of the
// live for good: a bin only gets fuller, and what is checked by node stricter.
func (p *packer) pointing(room []int64) int32 {
	for d, t := range p.target {
		p.pull[d] = (t - float64(p.load[d])) / float64(t*t)
		p.free[d] = room[d] - p.load[d]
	}
	best, most := int32(-1), math.Inf(-1)
	free, pull, keep := p.free, p.pull, p.live[:0]
sizes:
	for _, i := range p.live {
		s := &p.sizes[i]
		if s.left == 0 || s.next == len(s.lots) {
			continue
		}
		for d, q := range s.demand[:len(free)] {
			if q > free[d] {
				continue sizes
			}
		}
		keep = append(keep, i)
		sum := 0.0
		for d, q := range s.amount[:len(pull)] {
			sum += float64(q * pull[d])
		}
		if sum > most {
			best, most = i, sum
		}
	}
	p.live = keep
	return best
}

// candidate returns a lot of the size that may join the trial and how many of its
// pods to add, or -1.
func (p *packer) candidate(size, e int32) (int32, int32) {
	v, s := p.v, &p.sizes[size]
	breed := int(v.menu.entries[e].breed)
	for ; s.next < len(s.lots); s.next++ {
		li := s.lots[s.next]
		l := &p.lots[li]
		free := l.left - l.taken
		if free <= 0 || !l.breeds.has(breed) {
			continue
		}
		k := &v.kinds[l.kind]
		if k.local && !v.localInBin(k, &p.bin) {
			continue
		}
		if !v.budget.free(v, &p.bin) {
			if v.budget.enough(v, int32(breed), nowhere, l.breeds, p.breedsOf(&p.trial), p.load, k.demand) {
				return li, 1
			}
			continue
		}
		if !k.single() {
			return li, 1
		}
		return li, max(1, fill(v.menu.at(e), p.load, k.demand, free)/batchShare)
	}
	return -1, 0
}

// breedsOf returns the breeds that suit all that a pattern has, nil for an empty one.
func (p *packer) breedsOf(t *pattern) bitset {
	var all bitset
	for _, pt := range t.parts {
		if all == nil {
			all = slices.Clone(p.lots[pt.kind].breeds)
		} else {
			all.and(p.lots[pt.kind].breeds)
		}
	}
	return all
}

// join adds n pods of a lot to the trial.
func (p *packer) join(li, n int32) {
	l := &p.lots[li]
	k := &p.v.kinds[l.kind]
	for d, q := range k.demand {
		p.load[d] += int64(n) * q
	}
	p.trial.worth += int64(n) * k.worth
	p.sizes[l.size].left -= n
	if k.local {
		p.v.countLocal(&p.bin, k, l.bucket, n)
	}
	if l.taken += n; l.taken > n {
		for i := range p.trial.parts {
			if p.trial.parts[i].kind == li {
				p.trial.parts[i].n += n
				return
			}
		}
	}
	p.trial.parts = append(p.trial.parts, part{li, l.bucket, n})
}

// emit makes a bin of the best pattern.
func (p *packer) emit() {
	v := p.v
	b := p.fresh()
	b.entry = p.best.entry
	p.spent += v.menu.entries[b.entry].price
	v.budget.take(v, b.entry, 1)
	for i := range v.menu.breeds {
		if v.budget.mixes(v, v.menu.entries[b.entry].breed, int32(i)) {
			b.breeds.set(i)
		}
	}
	for _, pt := range p.best.parts {
		l := &p.lots[pt.kind]
		l.left -= pt.n
		sz := &p.sizes[l.size]
		sz.left -= pt.n
		if l.left == 0 {
			sz.lots = slices.DeleteFunc(sz.lots, func(li int32) bool { return li == pt.kind })
		}
		k := &v.kinds[l.kind]
		for d, q := range k.demand {
			b.load[d] += int64(pt.n) * q
			p.demand[d] -= int64(pt.n) * q
		}
		b.breeds.and(l.breeds)
		if k.local {
			v.countLocal(b, k, l.bucket, pt.n)
		}
		b.parts = append(b.parts, part{l.kind, l.bucket, pt.n})
	}
}

// fresh returns an empty bin at the end of out, from spare memory if there is.
func (p *packer) fresh() *bin {
	var b bin
	if n := len(p.spare); n > 0 {
		b = p.spare[n-1]
		p.spare = p.spare[:n-1]
		b.breeds.zero()
		clear(b.load)
		b.local, b.parts = b.local[:0], b.parts[:0]
	} else {
		b = bin{breeds: make(bitset, p.v.menu.words), load: make([]int64, p.v.menu.dims)}
	}
	p.out = append(p.out, b)
	return &p.out[len(p.out)-1]
}

// countLocal counts n pods of a kind in a bin's groups by node.
func (v *solver) countLocal(b *bin, k *kind, bucket, n int32) {
	if k.counts != nil {
		for _, g := range k.counts[bucket] {
			if v.groups[g].key < 0 {
				b.add(g, n)
			}
		}
	}
	for i := range k.spreads {
		if c := &k.spreads[i]; v.groups[c.group].key < 0 {
			b.holdTo(c.group, c.maxSkew)
		}
	}
}

// repack packs the bins' pods anew and takes the result if it is cheaper.
func (v *solver) repack() {
	p := v.newPacker()
	v.packer = p
	// Bins are taken apart by the weight of their pools, which the greedy search
	// has settled.
	var weights []int
	before := int64(0)
	for i := range v.bins {
		b := &v.bins[i]
		if v.movable(b) {
			weights = append(weights, v.weightOf(b.entry))
			before += v.menu.entries[b.entry].price
			v.budget.take(v, b.entry, -1)
		}
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	slices.Reverse(weights)
	var made []bin
	ok, after := true, int64(0)
	for _, w := range weights {
		p.begin()
		for i := range v.bins {
			if b := &v.bins[i]; v.movable(b) && v.weightOf(b.entry) == w {
				for _, pt := range b.parts {
					p.put(pt.kind, pt.bucket, pt.n)
				}
			}
		}
		p.merge()
		if !p.pack(w) {
			ok = false
			made = append(made, p.out...)
			break
		}
		made = append(made, p.out...)
		p.out = nil
	}
	for i := range made {
		b := &made[i]
		if e := v.cheapestFor(b); ok && e != b.entry {
			v.retarget(b, e)
		}
		after += v.menu.entries[b.entry].price
	}
	if !ok || after >= before {
		for i := range made {
			v.budget.take(v, made[i].entry, -1)
		}
		for i := range v.bins {
			if b := &v.bins[i]; v.movable(b) {
				v.budget.take(v, b.entry, 1)
			}
		}
		return
	}
	keep := v.bins[:0]
	for i := range v.bins {
		if b := &v.bins[i]; !v.movable(b) {
			keep = append(keep, *b)
		}
	}
	v.bins = append(keep, made...)
}

// movable reports whether a bin's pods may go to other bins: none asks for
// company by node.
func (v *solver) movable(b *bin) bool {
	for _, pt := range b.parts {
		for _, g := range v.kinds[pt.kind].attract {
			if v.groups[g].key < 0 {
				return false
			}
		}
	}
	return len(b.parts) > 0
}
