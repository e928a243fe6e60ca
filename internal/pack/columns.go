package pack

import (
	"cmp"
	"encoding/binary"
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
	// most is the price beyond which no node is considered.
	most float64
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
	m := &master{v: v, rows: rows, basis: make([]int32, n), inverse: make([]float64, n*n), x: make([]float64, n), dual: make([]float64, n), step: make([]float64, n), most: math.Inf(1)}
	m.restart()
	m.sack.init(m)
	same := map[string]int{}
	var key []byte
	some := make(bitset, v.menu.words)
	for i := range rows {
		some.or(rows[i].breeds)
	}
	for b := some.next(0); b >= 0; b = some.next(b + 1) {
		br := &v.menu.breeds[b]
		for e := br.first; e < br.last && br.reservation < 0 && v.menu.entries[e].price <= most; e++ {
			o := offer{entry: e}
			room := v.menu.at(e)
			key = key[:0]
			for i := range rows {
				if rows[i].breeds.has(b) && covers(room, rows[i].demand) {
					o.rows = append(o.rows, int32(i))
				}
			}
			if len(o.rows) == 0 {
				continue
			}
			// The same type in another zone, say, for which no row cares.
			for _, q := range room {
				key = binary.AppendVarint(key, q)
			}
			for _, i := range o.rows {
				key = binary.AppendVarint(key, int64(i))
			}
			if at, ok := same[string(key)]; ok {
				if v.menu.entries[e].price < v.menu.entries[m.offers[at].entry].price {
					m.offers[at].entry = e
				}
				continue
			}
			same[string(key)] = len(m.offers)
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

// restart empties the basis and forgets the bound, as is needed after the rows'
// counts or the entries considered have changed.
func (m *master) restart() {
	n := len(m.rows)
	clear(m.inverse)
	m.least = 0
	for i := range m.rows {
		m.basis[i] = artificial
		m.inverse[i*n+i] = 1
		// Slightly more than asked for, differently in each row, lest the simplex
		// method turns in circles on ties.
		m.x[i] = float64(m.rows[i].count) + 1e-5*float64(1+(i*7919)%101)
	}
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
			if m.price(int32(f)) > m.most {
				continue
			}
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
// It starts over after fillings were added. It returns the effort that is left.
func (m *master) generate(effort int, stop func() bool) int {
	m.settle()
	order := make([]int32, len(m.offers))
	hope := make([]float64, len(m.offers))
	limit := 300
	stalled, bestWorth := 0, math.Inf(1)
	for effort > 0 && stalled < mostStalled && (stop == nil || !stop()) {
		// The offers that promise most go first.
		order = order[:0]
		factor := 1.0
		for i := range m.offers {
			o := &m.offers[i]
			if float64(m.v.menu.entries[o.entry].price) > m.most {
				hope[i] = 0
				continue
			}
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
		stalled++
		if least := worth / factor; least > m.least*(1+stallStep) {
			stalled = 0
		}
		if worth < bestWorth*(1-stallStep) {
			bestWorth, stalled = worth, 0
		}
		m.least = max(m.least, worth/factor)
		if m.least >= worth*(1-closeEnough) {
			break
		}
		if added == 0 {
			if limit *= 8; limit > sackLimit {
				break
			}
			continue
		}
		m.settle()
	}
	return max(effort, 0)
}

// certify raises the bound by solving the knapsacks that stand in its way to a
// certain upper bound.
func (m *master) certify() {
	m.prices()
	worth, factor := m.worth(), 1.0
	left := certifySteps
	for i := range m.offers {
		o := &m.offers[i]
		price := max(float64(m.v.menu.entries[o.entry].price), 1)
		if m.sack.relaxed(o) <= price*factor || m.sack.fraction(o) <= price*factor {
			continue
		}
		m.sack.solve(o, min(left, certifyLimit))
		left -= min(left, certifyLimit) - max(m.sack.limit, 0)
		if factor = max(factor, m.sack.most/price); worth/factor <= m.least {
			return
		}
	}
	m.least = worth / factor
}

// What certifying may cost: steps for one knapsack, and for all, some tens of
// milliseconds' worth.
const (
	certifyLimit = 100_000
	certifySteps = 400_000
)

// The generation ends as well after so many rounds in which neither the mix nor
// the bound moved by so much: the last thousandth can take forever on problems in
// which many fillings are worth the same.
const (
	mostStalled = 12
	stallStep   = 2e-4
)

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

// settled reports whether the mix is so near to its bound that the dual prices
// can be trusted.
func (m *master) settled() bool { return m.least >= m.worth()*0.98 }

// bound returns what the rows cost at least. What rounding could have added is
// taken off.
func (m *master) bound() int64 { return int64(m.least * (1 - 1e-9)) }
