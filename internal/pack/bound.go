package pack

import "math/bits"

// bound returns what new nodes for the pods of the bins cost an hour at least.
//
// Let rates λ weigh resources, and let an entry's ratio be its price over the
// worth of its room. A pod is charged its worth times the least ratio of the
// entries that it could be on:
//
//	charge(p) = λ·demand(p) · min { price(e) / λ·room(e) : e takes p }
//
// Whatever pods share a node of entry e, each is charged at most e's own ratio,
// and together they need no more than its room, so that their charges come to
// its price at most. Summed over all nodes: no packing is cheaper than the
// charges. This holds for any rates; those of the fractional optimum make it
// nearly tight. All is computed with integers, rounding down what pods are
// charged and up what entries are worth.
//
// A reservation's instances cost next to nothing but are few. Charges leave them
// out, and what they could serve at most is taken off the sum.
func (v *solver) bound() int64 {
	m := v.menu
	worth := make([]int64, len(m.entries))
	for e := range m.entries {
		for d, q := range m.at(int32(e)) {
			if q > 0 && v.rates[d] > 0 {
				worth[e] += scaled(q, v.rates[d]) + 1
			}
		}
	}
	counts := make([]int64, len(v.kinds))
	for i := range v.bins {
		for _, p := range v.bins[i].parts {
			counts[p.kind] += int64(p.n)
		}
	}
	total, most := int64(0), int64(0)
	var mostPrice, mostWorth int64 = 1, 1
	for k := range counts {
		if counts[k] == 0 {
			continue
		}
		kd := &v.kinds[k]
		price, per, ok := v.leastRatio(kd, worth)
		if !ok {
			continue
		}
		charge := mulDiv(worthOf(kd.demand, v.rates), price, per)
		total += counts[k] * charge
		most = max(most, v.leastPrice(kd))
		if less(mostPrice, mostWorth, price, per) {
			mostPrice, mostWorth = price, per
		}
	}
	for i, n := range v.inReservations() {
		if n == 0 {
			continue
		}
		serves := int64(0)
		for b := range m.breeds {
			if br := &m.breeds[b]; br.reservation == int32(i) {
				for e := br.first; e < br.last; e++ {
					serves = max(serves, mulDiv(worth[e], mostPrice, mostWorth)+1-m.entries[e].price)
				}
			}
		}
		total -= n * serves
		most = 0
	}
	// Some node has to take the pod that needs the dearest one.
	return max(total, most)
}

// inReservations counts the bins that take an instance of each reservation.
func (v *solver) inReservations() []int64 {
	out := make([]int64, len(v.menu.reservations))
	for i := range v.bins {
		b := &v.bins[i]
		if len(b.parts) > 0 {
			if r := v.menu.breeds[v.menu.entries[b.entry].breed].reservation; r >= 0 {
				out[r]++
			}
		}
	}
	return out
}

// leastRatio returns the price and worth of the entry with the least ratio that
// takes a pod of the kind.
func (v *solver) leastRatio(k *kind, worth []int64) (price, per int64, ok bool) {
	m := v.menu
	for b := k.scheme.breeds.next(0); b >= 0; b = k.scheme.breeds.next(b + 1) {
		br := &m.breeds[b]
		if br.reservation >= 0 {
			continue
		}
		for e := br.first; e < br.last; e++ {
			if m.fits(e, k.demand) && worth[e] > 0 && (!ok || less(m.entries[e].price, worth[e], price, per)) {
				price, per, ok = m.entries[e].price, worth[e], true
			}
		}
	}
	return price, per, ok
}

// leastPrice returns what a node for one pod of the kind costs at least.
func (v *solver) leastPrice(k *kind) int64 {
	least := int64(-1)
	for b := k.scheme.breeds.next(0); b >= 0; b = k.scheme.breeds.next(b + 1) {
		br := &v.menu.breeds[b]
		for e := br.first; e < br.last; e++ {
			if v.menu.fits(e, k.demand) {
				if p := v.menu.entries[e].price; least < 0 || p < least {
					least = p
				}
				break
			}
		}
	}
	return max(least, 0)
}

// mulDiv returns a*b/c rounded down, for non-negative numbers with a result that
// fits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return unlimited
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, unlimited))
}

// less reports whether a/b is less than c/d.
func less(a, b, c, d int64) bool {
	ha, la := bits.Mul64(uint64(a), uint64(d))
	hc, lc := bits.Mul64(uint64(c), uint64(b))
	return ha < hc || ha == hc && la < lc
}
