package pack

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// What new nodes for some pods cost an hour at least, whatever the packing.
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
// charges. This holds for any rates, so that the best are looked for: first the
// dual prices of fractional problems, then steps that raise the sum.
//
// The search uses floating point; what is reported is computed with integers,
// rounding down what pods are charged and up what entries are worth.

// charge is the pods that ask for the same and may be in the same breeds.
type charge struct {
	demand []int64
	breeds bitset
	count  int64
	kinds  []int32
	// entries are those that take such a pod, reservations left out.
	entries []int32
}

// charges groups the pods that count gives for each kind.
func (v *solver) charges(count func(k int32) int64) []charge {
	at := make([]int32, len(v.templates))
	var out []charge
	for k := range v.kinds {
		n := count(int32(k))
		if n == 0 {
			continue
		}
		a := v.kinds[k].charge
		if at[a] == 0 {
			out = append(out, v.templates[a])
			at[a] = int32(len(out))
		}
		c := &out[at[a]-1]
		c.count += n
		c.kinds = append(c.kinds, int32(k))
	}
	return out
}

// findCharges numbers the kinds that ask for the same and may be in the same breeds,
// and lists the entries that take such a pod. Where pools have policies of their own, a
// pod of one form might have been of another: its charge is over the breeds of all.
func (v *solver) findCharges() {
	index := map[string]int32{}
	byPool := v.s.poolPolicies()
	for i := range v.batches {
		b := &v.batches[i]
		var all bitset
		for k := b.first; k < b.last; k++ {
			kd := &v.kinds[k]
			breeds := kd.scheme.breeds
			if byPool && b.last > b.first+1 {
				if all == nil {
					all = make(bitset, v.menu.words)
					for o := b.first; o < b.last; o++ {
						for w, bits := range v.kinds[o].scheme.breeds {
							all[w] |= bits
						}
					}
				}
				breeds = all
			}
			kd.charge = v.chargeOf(index, kd.demand, breeds)
		}
	}
}

// chargeOf returns the number of a charge without pods.
func (v *solver) chargeOf(index map[string]int32, demand []int64, breeds bitset) int32 {
	buf := v.buf[:0]
	for _, q := range demand {
		buf = binary.AppendVarint(buf, q)
	}
	for _, w := range breeds {
		buf = binary.LittleEndian.AppendUint64(buf, w)
	}
	v.buf = buf
	i, ok := index[string(buf)]
	if !ok {
		i = int32(len(v.templates))
		index[string(buf)] = i
		v.templates = append(v.templates, charge{demand: demand, breeds: breeds, entries: v.takersOf(demand, breeds)})
	}
	return i
}

// takersOf returns the entries of some breeds that take a pod.
func (v *solver) takersOf(demand []int64, breeds bitset) []int32 {
	var list []int32
	for pass, n := 0, 0; pass < 2; pass++ {
		list = make([]int32, 0, n)
		for b := breeds.next(0); b >= 0; b = breeds.next(b + 1) {
			br := &v.menu.breeds[b]
			if br.reservation >= 0 {
				continue
			}
			for e := br.first; e < br.last; e++ {
				if !v.menu.fits(e, demand) {
					continue
				}
				if n++; pass == 1 {
					list = append(list, e)
				}
			}
		}
	}
	return list
}

// findRates returns rates for the pods of the charges: those with the greatest
// sum of charges among the dual prices of a few fractional problems, improved by
// steps along single resources, as many as effort allows.
//
// One fractional problem is not enough. Small types are cheap in one resource and
// useless to most pods; a fraction of each pod could still use them. The problems
// leave out entries that take less than a share of the demand.
func (v *solver) findRates(charges []charge, effort int) []int64 {
	m := v.menu
	total := make([]int64, m.dims)
	for i := range charges {
		for d, q := range charges[i].demand {
			if len(charges[i].entries) > 0 {
				total[d] += q * charges[i].count
			}
		}
	}
	share, ratio := make([]float64, len(m.entries)), make([]float64, len(m.entries))
	for i := range charges {
		part := 0.0
		for d, q := range charges[i].demand {
			if total[d] > 0 {
				part += float64(float64(q) * float64(charges[i].count) / float64(total[d]))
			}
		}
		for _, e := range charges[i].entries {
			share[e] += part / float64(len(total))
		}
	}
	var best []int64
	most := -1.0
	var program program
	tried := -1
	for _, least := range [...]float64{0, 0.3, 0.6, 0.9, 0.999} {
		m.state(&program, total, func(e int32) bool { return share[e] > 0 && share[e] >= least })
		if len(program.cost) == tried {
			continue // the same entries as before
		}
		tried = len(program.cost)
		rates := m.dualPrices(&program, total)
		if sum := v.sumCharges(charges, rates, ratio); sum > most {
			best, most = rates, sum
		}
	}
	try := make([]int64, m.dims)
	for step := 0.5; step > 0.01 && effort > 0; {
		improved := false
		for d := range best {
			for _, factor := range [...]float64{1 + step, 1 / (1 + step)} {
				copy(try, best)
				try[d] = int64(min(float64(max(try[d], 1))*factor, 1<<60))
				effort--
				if sum := v.sumCharges(charges, try, ratio); sum > float64(most*1.00001) {
					copy(best, try)
					most, improved = sum, true
				}
			}
		}
		if !improved {
			step /= 2
		}
	}
	return best
}

// lean returns the mean of rates and of those that hold if a little more of one
// resource is asked for. The fractional problem often prices one resource alone,
// though another is nearly as scarce; nodes filled by such rates run out of it. In
// large nodes many pods even that out, so that this is for where cliques make nodes
// small: elsewhere it was measured to cost up to a percent.
func (m *menu) lean(rates, demand []int64) []int64 {
	var p program
	every := func(int32) bool { return true }
	more := slices.Clone(demand)
	sum := make([]float64, m.dims)
	for d, r := range rates {
		sum[d] = float64(r)
	}
	n := 1.0
	for d, q := range demand {
		if q == 0 {
			continue
		}
		more[d] = q + q/leanBy
		m.state(&p, more, every)
		for i, r := range m.dualPrices(&p, more) {
			sum[i] += float64(r)
		}
		n++
		more[d] = q
	}
	out := make([]int64, m.dims)
	for d := range out {
		out[d] = int64(sum[d] / n)
	}
	return out
}

// leanBy is the part of a resource by which more is asked for. A half, a quarter and
// an eighth were measured to do alike; without, the peer's mix costs 5 to 7 % more.
const leanBy = 4

// sumCharges returns the sum of all charges at the rates. Ratio is scratch, with
// a place for each entry.
func (v *solver) sumCharges(charges []charge, rates []int64, ratio []float64) float64 {
	m := v.menu
	for e := range m.entries {
		worth := 0.0
		for d, q := range m.at(int32(e)) {
			worth += float64(float64(max(q, 0)) * float64(rates[d]))
		}
		ratio[e] = math.Inf(1)
		if worth > 0 {
			ratio[e] = float64(m.entries[e].price) / worth
		}
	}
	sum := 0.0
	for i := range charges {
		c := &charges[i]
		worth := 0.0
		for d, q := range c.demand {
			worth += float64(float64(q) * float64(rates[d]))
		}
		least := math.Inf(1)
		for _, e := range c.entries {
			least = min(least, ratio[e])
		}
		if worth > 0 && !math.IsInf(least, 1) {
			sum += float64(float64(c.count) * float64(worth*least))
		}
	}
	return sum
}

// bound returns what new nodes for the pods of the bins cost an hour at least.
//
// A reservation's instances cost next to nothing but are few. Charges leave them
// out, and what they could serve at most is taken off the sum.
func (v *solver) bound() int64 {
	if v.lower >= 0 {
		return v.lower
	}
	v.lower = v.findBound()
	return v.lower
}

// onNew groups the pods that are on new nodes. Preferences that could be given up ask
// for nothing here.
func (v *solver) onNew() []charge {
	counts := make([]int64, len(v.kinds))
	for i := range v.bins {
		for _, p := range v.bins[i].parts {
			k := p.kind
			if b := &v.batches[v.kinds[k].batch]; v.weighs(b) {
				k = b.last - 1
			}
			counts[k] += int64(p.n)
		}
	}
	return v.charges(func(k int32) int64 { return counts[k] })
}

func (v *solver) findBound() int64 {
	charges := v.onNew()
	least := v.boundAt(charges, v.boundRates)
	if v.o.Work <= 0 || v.near(least) {
		return least
	}
	least = max(least, v.boundAt(charges, v.findRates(charges, boundEffort)))
	// A mix over all pools would put pods where their form may not be.
	if v.near(least) || len(charges) > maxRows || v.s.poolPolicies() {
		return least
	}
	return max(least, v.boundByColumns(charges))
}

// near reports whether the plan is so near to a bound that looking for a cheaper
// one, or for a better bound, is not worth the time.
func (v *solver) near(bound int64) bool { return v.price() <= bound+bound*goodEnough/1000 }

// maxRows is the number of rows up to which columns are generated: their cost
// grows with its square.
const maxRows = 160

// sacksPerRound is how many knapsacks a round of work buys: one to three milliseconds'
// worth.
const sacksPerRound = 100

func (v *solver) boundByColumns(charges []charge) int64 {
	for _, n := range v.inReservations() {
		if n > 0 {
			return 0
		}
	}
	rows := make([]need, 0, len(charges))
	at := make([]int32, len(v.kinds))
	for i := range charges {
		c := &charges[i]
		for _, k := range c.kinds {
			at[k] = int32(len(rows))
			if b := &v.batches[v.kinds[k].batch]; v.weighs(b) {
				for form := b.first; form < b.last; form++ {
					at[form] = at[k]
				}
			}
		}
		if len(c.entries) > 0 {
			rows = append(rows, need{demand: c.demand, amount: amounts(c.demand), breeds: c.breeds, count: c.count})
		}
	}
	if len(rows) == 0 {
		return 0
	}
	// A plan that is cheaper than this one has no node that costs as much as all of
	// it. What is left out so can only raise the bound, up to what this plan costs.
	cost := v.price()
	m := v.newMaster(rows, cost)
	m.learn(func(*bin) bool { return true }, func(pt part) int32 { return at[pt.kind] })
	m.generate(v.o.Work*sacksPerRound, v.o.Stop)
	m.certify()
	v.relaxed, v.relaxedRow = m, at
	return min(m.bound(), cost)
}

func amounts(demand []int64) []float64 {
	out := make([]float64, len(demand))
	for d, q := range demand {
		out[d] = float64(q)
	}
	return out
}

// boundEffort is how many rates the search for the best bound tries. The bound
// moves by less than a tenth of a percent after about forty.
const boundEffort = 60

// boundAt returns the bound at the rates.
func (v *solver) boundAt(charges []charge, rates []int64) int64 {
	m := v.menu
	worth := make([]int64, len(m.entries))
	for e := range m.entries {
		for d, q := range m.at(int32(e)) {
			if q > 0 && rates[d] > 0 {
				worth[e] = min(worth[e]+min(scaled(q, rates[d]), unlimited)+1, unlimited)
			}
		}
	}
	total, most := int64(0), int64(0)
	var mostPrice, mostWorth int64 = 0, 1
	for i := range charges {
		c := &charges[i]
		best, cheapest := int32(-1), int32(-1)
		for _, e := range c.entries {
			if worth[e] > 0 && (best < 0 || less(m.entries[e].price, worth[e], m.entries[best].price, worth[best])) {
				best = e
			}
			if cheapest < 0 || m.entries[e].price < m.entries[cheapest].price {
				cheapest = e
			}
		}
		if cheapest >= 0 {
			most = max(most, m.entries[cheapest].price)
		}
		if best < 0 {
			continue
		}
		price, per := m.entries[best].price, worth[best]
		total += c.count * mulDiv(worthOf(c.demand, rates), price, per)
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

// inReservations counts the instances of each reservation that nodes could take.
func (v *solver) inReservations() []int64 {
	out := make([]int64, len(v.menu.reservations))
	for i, id := range v.menu.reservations {
		out[i] = v.space.reserved(id)
	}
	return out
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
