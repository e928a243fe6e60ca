package pack

import (
	"cmp"
	"math"
	"slices"
)

// Column generation finds the cheapest fractional mix of filled nodes.
//
// A pattern is an entry and how many pods of each row it is filled with. Of all
// patterns, too many to list, the master problem
//
//	min Σ price(j)·x(j)   such that   Σ pods(j,i)·x(j) ≥ count(i) for each row i
//
// holds those that were found so far. Its dual prices say what a pod of each row
// is worth; a pattern whose pods are worth more than its price would make the mix
// cheaper, and finding one for an entry is a knapsack problem. When none is left
// the mix is the optimum, and it is hardly ever far from the best whole one
// (Gilmore and Gomory, 1961).
//
// The dual prices also bound the cost of any packing from below: if no pattern's
// pods are worth more than f times its price, nothing costs less than the worth
// of all pods over f (Farley, 1990). The bound needs the knapsacks solved to a
// certain upper bound, not to the optimum.

// need is pods that are alike as far as packing goes, a row of the master problem.
type need struct {
	demand []int64
	amount []float64
	breeds bitset
	count  int64
	// lot finds the pods again.
	kind, bucket int32
}

// filling is a pattern: counts of rows, those with none left out.
type filling struct {
	entry int32
	parts []rowCount
}

type rowCount struct {
	row int32
	n   int64
}

// What stands in the basis where no filling does: a column that makes up for what
// is missing at a prohibitive price, or one for what is supplied beyond need.
const (
	artificial = -1
	surplus    = -2
)

// master is the master problem with its basis.
type master struct {
	v     *solver
	rows  []need
	fills []filling
	// Basis: fillings or what stands for them, the inverse of their matrix, how much
	// of each there is, and the dual prices.
	basis   []int32
	inverse []float64
	x, dual []float64
	// offers are the entries that take some row.
	offers []offer
	step   []float64
	sack   knapsack
	// dear is the price of an artificial column.
	dear float64
	// least is the best bound so far.
	least float64
}

// offer is an entry with what is the same in all its knapsacks: the rows that it
// takes, and its room summed up in each direction.
type offer struct {
	entry int32
	rows  []int32
	total []float64
}

// newMaster makes a master problem over the entries that cost at most so much.
func (v *solver) newMaster(rows []need, most int64) *master {
	n := len(rows)
	m := &master{v: v, rows: rows, basis: make([]int32, n), inverse: make([]float64, n*n), x: make([]float64, n), dual: make([]float64, n), step: make([]float64, n)}
	for i := range rows {
		m.basis[i] = artificial
		m.inverse[i*n+i] = 1
		// Slightly more than asked for, differently in each row, lest the simplex
		// method turns in circles on ties.
		m.x[i] = float64(rows[i].count) + 1e-5*float64(1+(i*7919)%101)
	}
	m.sack.init(m)
	some := make(bitset, v.menu.words)
	for i := range rows {
		some.or(rows[i].breeds)
	}
	for b := some.next(0); b >= 0; b = some.next(b + 1) {
		br := &v.menu.breeds[b]
		for e := br.first; e < br.last && br.reservation < 0 && v.menu.entries[e].price <= most; e++ {
			o := offer{entry: e}
			room := v.menu.at(e)
			for i := range rows {
				if rows[i].breeds.has(b) && covers(room, rows[i].demand) {
					o.rows = append(o.rows, int32(i))
				}
			}
			if len(o.rows) == 0 {
				continue
			}
			for _, w := range m.sack.weights {
				total := 0.0
				for d, q := range room {
					total += float64(w[d] * float64(max(q, 0)))
				}
				o.total = append(o.total, total)
			}
			m.offers = append(m.offers, o)
			m.dear = max(m.dear, 4*float64(v.menu.entries[e].price))
		}
	}
	return m
}

func (m *master) price(f int32) float64 {
	switch f {
	case artificial:
		return m.dear
	case surplus:
		return 0
	}
	return float64(m.v.menu.entries[m.fills[f].entry].price)
}

// prices computes the dual prices.
func (m *master) prices() {
	n := len(m.rows)
	for j := range n {
		m.dual[j] = 0
	}
	for i := range n {
		if c := m.price(m.basis[i]); c != 0 {
			row := m.inverse[i*n : (i+1)*n]
			for j, a := range row {
				m.dual[j] += float64(c * a)
			}
		}
	}
}

// enter brings a filling into the basis.
func (m *master) enter(f int32) bool {
	n := len(m.rows)
	for i := range n {
		m.step[i] = 0
		for _, p := range m.fills[f].parts {
			m.step[i] += float64(m.inverse[i*n+int(p.row)] * float64(p.n))
		}
	}
	return m.pivot(f)
}

// pivot takes out of the basis what a step in the direction of step uses up first.
func (m *master) pivot(f int32) bool {
	n := len(m.rows)
	leave, ratio := -1, math.Inf(1)
	for i := range n {
		if m.step[i] > 1e-9 {
			r := m.x[i] / m.step[i]
			// Of equals the one with the greatest step keeps the inverse sound.
			if r < ratio-1e-12 || r <= ratio+1e-12 && leave >= 0 && m.step[i] > m.step[leave] {
				leave, ratio = i, r
			}
		}
	}
	if leave < 0 {
		return false
	}
	pivot := m.step[leave]
	out := m.inverse[leave*n : (leave+1)*n]
	for j := range out {
		out[j] /= pivot
	}
	for i := range n {
		if s := m.step[i]; i != leave && s != 0 {
			row := m.inverse[i*n : (i+1)*n]
			for j, a := range out {
				row[j] -= float64(s * a)
			}
			m.x[i] = max(0, m.x[i]-float64(ratio*s))
		}
	}
	m.x[leave] = ratio
	m.basis[leave] = f
	return true
}

// settle solves the master problem over the fillings that there are.
func (m *master) settle() {
	n := len(m.rows)
	for range 4*n + 100 {
		m.prices()
		enter, least := int32(-1), -1e-6
		for f := range m.fills {
			if r := m.reduced(int32(f)); r < least {
				enter, least = int32(f), r
			}
		}
		over := -1
		for i := range n {
			// A negative dual price: supplying more than is asked for helps.
			if r := m.dual[i] / m.dear; r < least {
				enter, over, least = -1, i, r
			}
		}
		switch {
		case over >= 0:
			for i := range n {
				m.step[i] = -m.inverse[i*n+over]
			}
			if !m.pivot(surplus) {
				return
			}
		case enter >= 0:
			if !m.enter(enter) {
				return
			}
		default:
			return
		}
	}
}

// reduced is how much a filling costs beyond what its pods are worth, relative to
// its price.
func (m *master) reduced(f int32) float64 {
	price := float64(m.v.menu.entries[m.fills[f].entry].price)
	r := price
	for _, p := range m.fills[f].parts {
		r -= float64(m.dual[p.row] * float64(p.n))
	}
	return r / max(price, 1)
}

// generate adds fillings of the entries until none helps or effort, counted in
// knapsacks, is spent.
//
// It starts over after fillings were added.
func (m *master) generate(effort int, stop func() bool) {
	m.settle()
	order := make([]int32, len(m.offers))
	hope := make([]float64, len(m.offers))
	limit := 300
	for effort > 0 && (stop == nil || !stop()) {
		// The offers that promise most go first.
		order = order[:0]
		factor := 1.0
		for i := range m.offers {
			o := &m.offers[i]
			hope[i] = m.sack.relaxed(o) / max(float64(m.v.menu.entries[o.entry].price), 1)
			if hope[i] > 1+1e-6 {
				hope[i] = min(hope[i], m.sack.fraction(o)/max(float64(m.v.menu.entries[o.entry].price), 1))
			}
			if hope[i] > 1+1e-6 {
				order = append(order, int32(i))
			}
		}
		slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(hope[b], hope[a]), cmp.Compare(a, b)) })
		added := 0
		for n, i := range order {
			o := &m.offers[i]
			if added == fillsAtOnce {
				factor = max(factor, hope[order[n]])
				break
			}
			effort -= limit / 300
			price := max(float64(m.v.menu.entries[o.entry].price), 1)
			if m.sack.solve(o, limit) > price*(1+1e-5) {
				m.fills = append(m.fills, filling{o.entry, slices.Clone(m.sack.best)})
				added++
			}
			factor = max(factor, m.sack.most/price)
		}
		worth := m.worth()
		m.least = max(m.least, worth/factor)
		if m.least >= worth*(1-closeEnough) {
			return
		}
		if added == 0 {
			if limit *= 8; limit > sackLimit {
				return
			}
			continue
		}
		m.settle()
	}
}

// closeEnough ends the generation of columns once bound and mix are this near.
const closeEnough = 0.001

// worth is what all rows are worth at the dual prices: the cost of the mix.
func (m *master) worth() float64 {
	sum := 0.0
	for i := range m.rows {
		m.dual[i] = max(m.dual[i], 0)
		sum += float64(m.dual[i] * float64(m.rows[i].count))
	}
	return sum
}

// sackLimit is how many steps a knapsack is given at most.
const sackLimit = 20000

// fillsAtOnce is how many fillings enter the master problem before its prices are
// computed anew. More would mostly be superseded by the first.
const fillsAtOnce = 6

// bound returns what the rows cost at least. What rounding could have added is
// taken off.
func (m *master) bound() int64 { return int64(m.least * (1 - 1e-9)) }

// knapsack finds the most valuable filling of an entry at the master's dual
// prices by depth-first search over counts, the densest rows first, cut off by
// the fractional bound.
type knapsack struct {
	m *master
	// items are the rows that fit the entry, the densest first.
	items []item
	room  []int64
	count []int64
	limit int
	value float64
	best  []rowCount
	// lens are the directions in which a search looks at what is left, the best one
	// first: how much room is left, and the density of the densest row from each
	// item on.
	lens  []lens
	found float64
	// most bounds the value of any filling from above.
	most float64
	// weights are directions in which resources are summed up; heft has what a pod
	// of each row then weighs, by direction.
	weights [][]float64
	heft    [][]float64
	dir     int
	// The linear relaxation of one entry's knapsack: basis inverse, cost of what is in
	// the basis, how much is left of each, prices; then the pods' weights at these
	// prices and the entry's.
	inverse, cost, left, price, step []float64
	own                              []float64
	ownTotal                         float64
}

// lens is a direction during one search.
type lens struct {
	heft    []float64
	left    float64
	densest []float64
}

type item struct {
	row     int32
	value   float64
	density float64
}

func (k *knapsack) init(m *master) {
	k.m = m
	k.room = make([]int64, len(m.v.dims))
	k.count = make([]int64, len(m.rows))
	// The going rates, all resources alike, and leanings of both towards and away
	// from each resource.
	rates, alike := make([]float64, len(m.v.dims)), make([]float64, len(m.v.dims))
	for i := range m.rows {
		for d, q := range m.rows[i].amount {
			alike[d] += float64(q * float64(m.rows[i].count))
		}
	}
	for d := range alike {
		rates[d] = float64(m.v.rates[d])
		alike[d] = 1 / max(alike[d], 1)
	}
	for _, base := range [...][]float64{rates, alike} {
		k.weights = append(k.weights, base)
		for d := range base {
			for _, lean := range [...]float64{0, 0.3, 3, 30} {
				w := slices.Clone(base)
				w[d] *= lean
				k.weights = append(k.weights, w)
			}
		}
	}
	for _, w := range k.weights {
		heft := make([]float64, len(m.rows))
		for i := range m.rows {
			for d, q := range m.rows[i].amount {
				heft[i] += float64(w[d] * q)
			}
		}
		k.heft = append(k.heft, heft)
	}
}

// relaxed bounds the value of an entry's fillings from above, quickly. It leaves
// behind the direction that did best.
func (k *knapsack) relaxed(o *offer) float64 {
	least := math.Inf(1)
	for w, heft := range k.heft {
		density := 0.0
		for _, i := range o.rows {
			if v := k.m.dual[i]; v > float64(density*heft[i]) {
				if heft[i] <= 0 {
					density = math.Inf(1)
					break
				}
				density = v / heft[i]
			}
		}
		if b := float64(o.total[w] * density); b < least {
			least, k.dir = b, w
		}
	}
	return least
}

// fraction bounds the value of an entry's fillings by the knapsack's own linear
// relaxation, and leaves behind the direction that proves it: the prices of the
// entry's resources at the optimum.
func (k *knapsack) fraction(o *offer) float64 {
	m := k.m
	dims := len(k.room)
	room := m.v.menu.at(o.entry)
	if k.inverse == nil {
		k.inverse, k.cost = make([]float64, dims*dims), make([]float64, dims)
		k.left, k.price, k.step = make([]float64, dims), make([]float64, dims), make([]float64, dims)
	}
	// Resources are scaled so that the entry has one of each.
	part := func(i int32, d int) float64 { return m.rows[i].amount[d] / float64(max(room[d], 1)) }
	for i := range k.inverse {
		k.inverse[i] = 0
	}
	for d := range dims {
		k.inverse[d*dims+d], k.cost[d], k.left[d] = 1, 0, 1
	}
	for range 20 * dims {
		for d := range dims {
			k.price[d] = 0
			for r := range dims {
				k.price[d] += float64(k.cost[r] * k.inverse[r*dims+d])
			}
		}
		enter, most := int32(-1), 1e-7
		for _, i := range o.rows {
			gain := m.dual[i]
			for d := range dims {
				gain -= float64(k.price[d] * part(i, d))
			}
			if gain = gain / max(m.dual[i], 1e-9); gain > most {
				enter, most = i, gain
			}
		}
		slack := -1
		for d := range dims {
			if k.price[d] < -1e-9 {
				enter, slack = -1, d
				break
			}
		}
		if enter < 0 && slack < 0 {
			break
		}
		leave, ratio := -1, math.Inf(1)
		for r := range dims {
			k.step[r] = 0
			if slack >= 0 {
				k.step[r] = k.inverse[r*dims+slack]
			} else {
				for d := range dims {
					k.step[r] += float64(k.inverse[r*dims+d] * part(enter, d))
				}
			}
			if k.step[r] > 1e-12 && k.left[r]/k.step[r] < ratio {
				leave, ratio = r, k.left[r]/k.step[r]
			}
		}
		if leave < 0 {
			break
		}
		k.cost[leave] = 0
		if slack < 0 {
			k.cost[leave] = m.dual[enter]
		}
		pivot := k.step[leave]
		for d := range dims {
			k.inverse[leave*dims+d] /= pivot
		}
		for r := range dims {
			if r != leave {
				k.left[r] -= float64(ratio * k.step[r])
				for d := range dims {
					k.inverse[r*dims+d] -= float64(k.step[r] * k.inverse[leave*dims+d])
				}
			}
		}
		k.left[leave] = ratio
	}
	// Made feasible again against rounding, whatever the simplex method did: the
	// prices, raised until every row's pods cost at least their value.
	k.own = slices.Grow(k.own[:0], len(m.rows))[:len(m.rows)]
	density, total := 0.0, 0.0
	for d := range dims {
		k.price[d] = max(k.price[d], 0)
		total += k.price[d]
	}
	for _, i := range o.rows {
		k.own[i] = 0
		for d := range dims {
			k.own[i] += float64(k.price[d] * part(i, d))
		}
		if m.dual[i] <= 0 {
			continue
		}
		if k.own[i] <= 0 {
			return math.Inf(1)
		}
		density = max(density, m.dual[i]/k.own[i])
	}
	k.ownTotal = total
	return float64(total * density)
}

// solve searches for the best filling within limit steps and returns its value.
func (k *knapsack) solve(o *offer, limit int) float64 {
	m := k.m
	copy(k.room, m.v.menu.at(o.entry))
	k.relaxed(o)
	proven := k.fraction(o)
	// Besides the best direction, those that lean to one resource: as a node fills
	// up, what is short changes.
	heft, total := k.own, k.ownTotal
	if math.IsInf(proven, 1) {
		heft, total = k.heft[k.dir], o.total[k.dir]
	}
	k.items = k.items[:0]
	for _, i := range o.rows {
		if m.dual[i] > 0 {
			k.items = append(k.items, item{row: i, value: m.dual[i], density: m.dual[i] / max(heft[i], 1e-300)})
		}
	}
	slices.SortFunc(k.items, func(a, b item) int { return cmp.Or(cmp.Compare(b.density, a.density), cmp.Compare(a.row, b.row)) })
	k.lens = k.lens[:0]
	k.look(heft, total)
	k.look(k.heft[k.dir], o.total[k.dir])
	for d := range k.room {
		k.look(k.heft[4*(d+1)], o.total[4*(d+1)])
	}
	k.limit, k.value, k.found, k.most = limit, 0, 0, 0
	k.search(0)
	k.most = min(max(k.most, k.found*(1+sackSlack)), proven)
	return k.found
}

// look adds a direction to the lenses.
func (k *knapsack) look(heft []float64, total float64) {
	n := len(k.lens)
	if n < cap(k.lens) {
		k.lens = k.lens[:n+1]
	} else {
		k.lens = append(k.lens, lens{})
	}
	l := &k.lens[n]
	l.heft, l.left = heft, total
	l.densest = slices.Grow(l.densest[:0], len(k.items)+1)[:len(k.items)+1]
	l.densest[len(k.items)] = 0
	for i := len(k.items) - 1; i >= 0; i-- {
		it := &k.items[i]
		density := math.Inf(1)
		if h := l.heft[it.row]; h > 0 {
			density = it.value / h
		}
		l.densest[i] = max(l.densest[i+1], density)
	}
}

// ahead bounds what items from at on can add.
func (k *knapsack) ahead(at int) float64 {
	least := math.Inf(1)
	for i := range k.lens {
		l := &k.lens[i]
		if d := l.densest[at]; d == 0 {
			return 0
		} else if !math.IsInf(d, 1) {
			least = min(least, float64(max(l.left, 0)*d))
		}
	}
	return least
}

// sackSlack is how far below the best a knapsack's filling may be. In large types
// the last thousandth takes nearly all of the search.
const sackSlack = 0.001

// search tries counts of the items from at on.
func (k *knapsack) search(at int) {
	// Items that no longer fit are passed over.
	for at < len(k.items) && !covers(k.room, k.m.rows[k.items[at].row].demand) {
		at++
	}
	if at == len(k.items) {
		if k.value > k.found {
			k.found = k.value
			k.best = k.best[:0]
			for i, n := range k.count {
				if n > 0 {
					k.best = append(k.best, rowCount{int32(i), n})
				}
			}
		}
		return
	}
	it := &k.items[at]
	if k.limit--; k.limit < 0 {
		k.most = max(k.most, k.value+k.ahead(at))
		return
	}
	r := &k.m.rows[it.row]
	most := r.count
	for d, q := range r.demand {
		if q > 0 {
			most = min(most, k.room[d]/q)
		}
	}
	for n := most; n >= 0; n-- {
		k.limit--
		k.take(r, it, n)
		goal := k.found * (1 + sackSlack)
		if k.value+k.ahead(at+1) > goal {
			k.search(at + 1)
		} else if k.value+float64(k.lens[0].left*k.lens[0].densest[at+1]) <= goal {
			// By the first direction, in which items are sorted, fewer of this one cannot
			// do better either.
			k.take(r, it, -n)
			return
		}
		k.take(r, it, -n)
		if k.limit < 0 && n > 0 {
			k.most = max(k.most, k.value+k.ahead(at))
			return
		}
	}
}

func (k *knapsack) take(r *need, it *item, n int64) {
	for d, q := range r.demand {
		k.room[d] -= n * q
	}
	k.count[it.row] += n
	k.value += float64(it.value * float64(n))
	for i := range k.lens {
		k.lens[i].left -= float64(k.lens[i].heft[it.row] * float64(n))
	}
}
