package pack

// Improving a plan is repeated repacking of a few bins that waste much: take
// some apart, pack their pods anew with a little noise, keep the result if it is
// cheaper. What helped once is done again wherever bins are filled alike.
//
// Noise comes from a generator that starts at the same place each time, so that
// the result depends on the problem alone, unless Stop ends the search.

const (
	// triesPerRound is the unit in which Options.Work counts: about two
	// milliseconds' worth.
	triesPerRound = 32
	// mostTaken is how many bins are taken apart at most. With more the new packing
	// is seldom better, with fewer it is often the old one.
	mostTaken = 5
	// patience is how many attempts in vain, and an eighth of it more for each bin,
	// end the search.
	patience = 96
	// goodEnough ends the search once the gap is below so many thousandths.
	goodEnough = 1
)

// noise is a small generator of pseudo-random numbers (Marsaglia's xorshift64*).
type noise uint64

func (n *noise) next() uint64 {
	x := uint64(*n)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*n = noise(x)
	return x * 0x2545f4914f6cdd1d
}

// below returns a number from 0 to m-1.
func (n *noise) below(m int) int { return int(n.next() >> 33 % uint64(m)) }

// factor returns a number around one, at most spread away.
func (n *noise) factor(spread float64) float64 {
	return 1 + spread*(float64(n.next()>>11)/(1<<52)-1)
}

// improve makes the bins cheaper until work, time or what there is to gain ends.
func (v *solver) improve() {
	p := v.packer
	p.noise = 0x9e3779b97f4a7c15
	var movable []int32
	for i := range v.bins {
		if v.movable(&v.bins[i]) {
			movable = append(movable, int32(i))
		}
	}
	if len(movable) == 0 {
		return
	}
	v.mobile = movable
	bound := v.bound()
	vain := 0
	for range v.o.Work {
		for range triesPerRound {
			if vain++; v.attempt() {
				vain = 0
			}
		}
		if vain > patience+patience/8*len(v.mobile) {
			break
		}
		if v.stopped() {
			break
		}
		if v.near(bound) {
			break
		}
	}
	keep := v.bins[:0]
	for i := range v.bins {
		if len(v.bins[i].parts) > 0 {
			keep = append(keep, v.bins[i])
		}
	}
	v.bins = keep
	v.mobile = nil
}

// price sums the prices of the bins.
func (v *solver) price() int64 {
	sum := int64(0)
	for i := range v.bins {
		if len(v.bins[i].parts) > 0 {
			sum += v.menu.entries[v.bins[i].entry].price
		}
	}
	return sum
}

// waste is what a bin costs beyond the worth of its pods.
func (v *solver) waste(b *bin) int64 {
	w := v.menu.entries[b.entry].price
	for _, pt := range b.parts {
		w -= int64(pt.n) * v.kinds[pt.kind].worth
	}
	return w
}

// attempt takes a few bins apart once and reports whether that made the plan
// cheaper.
func (v *solver) attempt() bool {
	p := v.packer
	if len(v.mobile) == 0 {
		return false
	}
	// The most wasteful of a few leads.
	lead := v.mobile[p.noise.below(len(v.mobile))]
	for range 2 {
		if c := v.mobile[p.noise.below(len(v.mobile))]; v.waste(&v.bins[c]) > v.waste(&v.bins[lead]) {
			lead = c
		}
	}
	v.taken = append(v.taken[:0], lead)
	weight := v.weightOf(v.bins[lead].entry)
	for n := p.noise.below(mostTaken); n > 0; n-- {
		c := v.mobile[p.noise.below(len(v.mobile))]
		if !contains(v.taken, c) && v.weightOf(v.bins[c].entry) == weight {
			v.taken = append(v.taken, c)
		}
	}
	before := int64(0)
	p.begin()
	for _, i := range v.taken {
		b := &v.bins[i]
		before += v.menu.entries[b.entry].price
		v.budget.take(v, b.entry, -1)
		for _, pt := range b.parts {
			p.put(pt.kind, pt.bucket, pt.n)
		}
	}
	p.merge()
	p.limit = before
	ok := p.pack(weight)
	after := int64(0)
	for i := range p.out {
		b := &p.out[i]
		if e := v.cheapestFor(b); ok && e != b.entry {
			v.retarget(b, e)
		}
		after += v.menu.entries[b.entry].price
	}
	if !ok || after >= before {
		for i := range p.out {
			v.budget.take(v, p.out[i].entry, -1)
		}
		for _, i := range v.taken {
			v.budget.take(v, v.bins[i].entry, 1)
		}
		p.recycle(p.out)
		return false
	}
	v.replace()
	return true
}

func contains(list []int32, x int32) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// replace puts the packer's bins where the taken ones were, and does the same to
// other bins that are filled alike.
func (v *solver) replace() {
	p := v.packer
	v.prints = v.prints[:0]
	for _, i := range v.taken {
		v.prints = append(v.prints, v.bins[i].print())
	}
	v.swapIn(p.out)
	for v.alike() {
		ok := true
		for _, i := range v.taken {
			v.budget.take(v, v.bins[i].entry, -1)
		}
		v.copies = v.copies[:0]
		for i := range p.out {
			b := &p.out[i]
			if !v.budget.room(v, b.entry, nowhere) {
				ok = false
				break
			}
			v.budget.take(v, b.entry, 1)
			v.copies = append(v.copies, b.clone())
		}
		if !ok {
			for i := range v.copies {
				v.budget.take(v, v.copies[i].entry, -1)
			}
			for _, i := range v.taken {
				v.budget.take(v, v.bins[i].entry, 1)
			}
			break
		}
		v.swapIn(v.copies)
	}
	p.out = p.out[:0]
}

// swapIn empties the taken bins and puts new ones in their places and at the end.
func (v *solver) swapIn(made []bin) {
	for n, i := range v.taken {
		v.bins[i] = bin{}
		if n < len(made) {
			v.bins[i] = made[n]
		}
	}
	for n := len(v.taken); n < len(made); n++ {
		v.bins = append(v.bins, made[n])
		v.mobile = append(v.mobile, int32(len(v.bins)-1))
	}
	if len(made) < len(v.taken) {
		keep := v.mobile[:0]
		for _, i := range v.mobile {
			if len(v.bins[i].parts) > 0 {
				keep = append(keep, i)
			}
		}
		v.mobile = keep
	}
}

// alike finds other bins that are filled as the taken ones were and takes them.
func (v *solver) alike() bool {
	next := v.taken[:0]
	for _, want := range v.prints {
		found := false
		for _, i := range v.mobile {
			if !contains(next, i) && v.bins[i].print() == want {
				next = append(next, i)
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	v.taken = next
	return true
}

// print is a number that bins filled alike share, and others hardly ever do.
func (b *bin) print() uint64 {
	sum := uint64(b.entry) * 0x9e3779b97f4a7c15
	for _, pt := range b.parts {
		n := noise(uint64(pt.kind)<<40 ^ uint64(pt.bucket)<<32 ^ uint64(pt.n)<<1 ^ 0x5851f42d4c957f2d)
		n.next()
		sum += n.next()
	}
	return sum
}

func (b *bin) clone() bin {
	c := *b
	c.breeds = append(bitset(nil), b.breeds...)
	c.load = append([]int64(nil), b.load...)
	c.local = append([]localCount(nil), b.local...)
	c.parts = append([]part(nil), b.parts...)
	return c
}

// recycle keeps the memory of bins that are not used.
func (p *packer) recycle(bins []bin) {
	p.spare = append(p.spare, bins...)
}
