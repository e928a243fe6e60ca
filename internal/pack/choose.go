package pack

import (
	"math"
	"math/bits"
)

// choose returns the bucket and entry for a new bin for a kind, or -1: in the
// heaviest pools that will do, in the emptiest domain where spread has a say,
// else what gives most for the money.
func (v *solver) choose(k *kind) (int32, int32) {
	bestBucket, best := int32(-1), int32(-1)
	for _, bi := range v.turns(k) {
		c := &k.cursors[bi]
		bucket := &k.scheme.buckets[bi]
		if c.shut || !bucket.some || len(k.attract) > 0 && !v.startsHere(k) {
			continue
		}
		if k.local && !v.localInBin(k, &bin{}) {
			continue
		}
		e := v.pick(k, bucket, c)
		if e < 0 {
			c.shut = true
			continue
		}
		if best >= 0 && v.crowd(k, bi) > v.crowd(k, bestBucket) {
			break
		}
		if v.way.fresh && v.way.shuffle != 0 {
			// Any domain will do, the more varied the better.
			if best < 0 || v.way.shuffle.next()>>63 == 0 {
				bestBucket, best = bi, e
			}
			continue
		}
		if best < 0 || v.better(k, e, best) || !v.better(k, best, e) && v.binsIn(e) < v.binsIn(best) {
			bestBucket, best = bi, e
		}
	}
	return bestBucket, best
}

// binsIn counts the bins of an entry's breed, so that nodes spread over zones where
// nothing else decides.
func (v *solver) binsIn(e int32) int32 {
	if b := int(v.menu.entries[e].breed); b < len(v.perBreed) {
		return v.perBreed[b]
	}
	return 0
}

// pick returns the entry of a bucket to open for a kind, or -1. The last answer
// stands while more demand remains than that entry has room for.
func (v *solver) pick(k *kind, bucket *bucket, c *cursor) int32 {
	if c.pick >= 0 && covers(v.remaining, v.menu.at(c.pick)) && v.budget.opens(v, c.pick, k) {
		return c.pick
	}
	best := v.bestOf(v.shortlist(bucket.breeds).entries, k)
	if best < 0 {
		for b := bucket.breeds.next(0); b >= 0; b = bucket.breeds.next(b + 1) {
			br := &v.menu.breeds[b]
			v.list = v.list[:0]
			for e := br.first; e < br.last; e++ {
				v.list = append(v.list, e)
			}
			if e := v.bestOf(v.list, k); e >= 0 && (best < 0 || v.better(k, e, best)) {
				best = e
			}
		}
	}
	c.pick = best
	return best
}

// bestOf returns the best entry of a list for a new bin for a kind, or -1.
func (v *solver) bestOf(list []int32, k *kind) int32 {
	best := int32(-1)
	for _, e := range list {
		if v.menu.fits(e, k.demand) && (best < 0 || v.better(k, e, best)) && v.budget.opens(v, e, k) && !(v.real && !v.opened(v.menu.entries[e].breed)) {
			best = e
		}
	}
	return best
}

// better reports whether entry a is to be preferred to b for a new bin: by the
// weight of its pool, then by how much of the remaining demand it serves for its
// price.
func (v *solver) better(k *kind, a, b int32) bool {
	switch {
	case v.way.small:
		return v.budget.smaller(v, a, b)
	case v.way.frugal && len(v.menu.limited) > 0:
		n := len(v.menu.limited)
		return less(v.menu.capacity[int(a)*n], max(v.serves(k, a), 1), v.menu.capacity[int(b)*n], max(v.serves(k, b), 1))
	}
	if wa, wb := v.weightOf(a), v.weightOf(b); wa != wb {
		return wa > wb
	}
	pa, pb := max(v.menu.entries[a].price, 1), max(v.menu.entries[b].price, 1)
	ha, la := bits.Mul64(uint64(v.serves(k, a)), uint64(pb))
	hb, lb := bits.Mul64(uint64(v.serves(k, b)), uint64(pa))
	if ha != hb {
		return ha > hb
	}
	return la > lb
}

// serves is the worth of the demand that an entry serves if it is filled in
// proportion to what remains: as much as the resource that is used up first
// allows. An entry with much of what few pods need so serves little.
func (v *solver) serves(k *kind, e int32) int64 {
	room := v.menu.at(e)
	// The share of what remains is a fraction part/whole, at most one.
	part, whole := int64(1), int64(1)
	for d, q := range v.remaining {
		if q = max(q, k.demand[d]); q > 0 && less(max(room[d], 0), q, part, whole) {
			part, whole = max(room[d], 0), q
		}
	}
	sum := int64(0)
	for d, q := range v.remaining {
		if q = max(q, k.demand[d]); q > 0 && v.rates[d] > 0 {
			sum += mulDiv(scaled(q, v.rates[d]), part, whole)
		}
	}
	return sum
}

// spend takes from what remains what an entry serves of it.
func (v *solver) spend(e int32) {
	room := v.menu.at(e)
	part, whole := int64(1), int64(1)
	for d, q := range v.remaining {
		if q > 0 && less(max(room[d], 0), q, part, whole) {
			part, whole = max(room[d], 0), q
		}
	}
	for d, q := range v.remaining {
		v.remaining[d] = q - mulDiv(q, part, whole)
	}
}

func (v *solver) weight(pool int32) int { return v.space.pools[pool].pool.Weight }

func (v *solver) weightOf(e int32) int {
	return v.weight(v.menu.breeds[v.menu.entries[e].breed].pool)
}

// cheapest returns the cheapest entry that a kind could have a new node of, or -1.
func (v *solver) cheapest(k int32) int32 {
	kd := &v.kinds[k]
	best := int32(-1)
	for _, bi := range v.turns(kd) {
		bucket := &kd.scheme.buckets[bi]
		for b := bucket.breeds.next(0); b >= 0; b = bucket.breeds.next(b + 1) {
			br := &v.menu.breeds[b]
			for e := br.first; e < br.last; e++ {
				if best >= 0 && v.menu.entries[e].price >= v.menu.entries[best].price {
					break
				}
				if v.menu.fits(e, kd.demand) && v.budget.opens(v, e, kd) {
					best = e
					break
				}
			}
		}
	}
	return best
}

// heaviest returns the greatest weight of a pool that can have a new node for some
// form of a batch, if forms are for different pools, else the least number.
func (v *solver) heaviest(b *batch) int {
	most := math.MinInt
	if !v.s.poolPolicies() {
		return most
	}
	for i := range v.menu.breeds {
		br := &v.menu.breeds[i]
		w := v.weight(br.pool)
		for k := b.first; k < b.last && w > most; k++ {
			if v.kinds[k].scheme.breeds.has(i) && v.anyFits(br, &v.kinds[k]) {
				most = w
			}
		}
	}
	return most
}

// mayOpen reports whether a kind may have a new node in a pool of some weight or more.
func (v *solver) mayOpen(k int32, least int) bool {
	breeds := v.kinds[k].scheme.breeds
	for i := breeds.next(0); i >= 0; i = breeds.next(i + 1) {
		if v.weight(v.menu.breeds[i].pool) >= least {
			return true
		}
	}
	return false
}

// other returns the cheapest entry up to a price that a bin could become to take
// one more pod of a kind in a bucket, or -1.
func (v *solver) other(b *bin, k *kind, bucket *bucket, most int64) int32 {
	best := int32(-1)
	for i := range b.breeds {
		for w := b.breeds[i] & bucket.breeds[i]; w != 0; w &= w - 1 {
			br := &v.menu.breeds[i<<6+bits.TrailingZeros64(w)]
			for e := br.first; e < br.last; e++ {
				price := v.menu.entries[e].price
				if price > most || best >= 0 && price >= v.menu.entries[best].price {
					break
				}
				if v.menu.fitsSum(e, b.load, k.demand) && v.budget.swaps(v, b.entry, e) {
					best = e
					break
				}
			}
		}
	}
	return best
}

// cheapestFor returns the cheapest entry, in pools as heavy as the bin's, that
// fits its load.
func (v *solver) cheapestFor(b *bin) int32 {
	best := b.entry
	weight := v.weightOf(b.entry)
	for i := b.breeds.next(0); i >= 0; i = b.breeds.next(i + 1) {
		br := &v.menu.breeds[i]
		if v.weight(br.pool) != weight {
			continue
		}
		for e := br.first; e < br.last && v.menu.entries[e].price < v.menu.entries[best].price; e++ {
			if v.menu.fits(e, b.load) && v.budget.swaps(v, b.entry, e) {
				best = e
				break
			}
		}
	}
	return best
}

// rightSize makes every bin the cheapest entry that fits its load.
func (v *solver) rightSize() {
	for i := range v.bins {
		b := &v.bins[i]
		if e := v.cheapestFor(b); e >= 0 {
			v.retarget(b, e)
		}
	}
}
