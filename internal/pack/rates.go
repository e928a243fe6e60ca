package pack

import (
	"math"
	"math/bits"
	"slices"
)

// Rates say what a unit of each resource costs at best, so that resources can be
// weighed against each other. They are the dual prices of the fractional problem
//
//	min Σ price(e)·x(e)   such that   Σ room(e,d)·x(e) ≥ demand(d) for each d
//
// over the menu's entries: no mix of entries supplies a unit for less than its
// rate on average, and the cheapest mix supplies it for exactly that. The linear
// program has one row a resource, seldom more than four, and is solved by the
// revised simplex method.
//
// This is the one place with floating point. It steers the search and no more:
// products are rounded before they are summed, so that every processor gets the
// same numbers, and what is reported as a bound is checked with integers
// afterwards.

// rateShift is the number of fractional bits of a rate: enough to price a byte,
// which costs some millionths of a millionth of a dollar an hour.
const rateShift = 32

// scaled returns quantity times rate in millionths of a dollar.
func scaled(quantity, rate int64) int64 {
	hi, lo := bits.Mul64(uint64(quantity), uint64(rate))
	if hi>>(rateShift-1) != 0 {
		return math.MaxInt64
	}
	return int64(hi<<(64-rateShift) | lo>>rateShift)
}

// worthOf returns what a load is worth at the rates.
func worthOf(load, rates []int64) int64 {
	sum := int64(0)
	for d, q := range load {
		if q > 0 && rates[d] > 0 {
			sum = min(sum+min(scaled(q, rates[d]), unlimited), unlimited)
		}
	}
	return sum
}

// program is the linear program, with columns scaled so that each row asks for one.
// Its memory is kept from one to the next.
type program struct {
	rows      []int     // the dimensions that are asked for
	cost, col []float64 // by entry; col has a place for each row
	best      []float64 // what each row costs alone, zero if nothing supplies it
}

// state writes down the program over the entries for which use is true.
func (m *menu) state(p *program, demand []int64, use func(e int32) bool) {
	p.rows, p.cost, p.col, p.best = p.rows[:0], p.cost[:0], p.col[:0], p.best[:0]
	for d, q := range demand {
		if q > 0 {
			p.rows = append(p.rows, d)
			p.best = append(p.best, 0)
		}
	}
	p.cost, p.col = slices.Grow(p.cost, len(m.entries)), slices.Grow(p.col, len(m.entries)*len(p.rows))
	for e := range m.entries {
		if !use(int32(e)) {
			continue
		}
		at := m.at(int32(e))
		cost := float64(max(m.entries[e].price, 1))
		p.cost = append(p.cost, cost)
		for i, d := range p.rows {
			a := float64(max(at[d], 0)) / float64(demand[d])
			p.col = append(p.col, a)
			if a > 0 {
				if alone := cost / a; p.best[i] == 0 || alone < p.best[i] {
					p.best[i] = alone
				}
			}
		}
	}
}

// dualPrices solves the program. Resources that no entry supplies have no rate.
func (m *menu) dualPrices(p *program, demand []int64) []int64 {
	rates := make([]int64, m.dims)
	dual := simplex(p.cost, p.col, p.best)
	for i, d := range p.rows {
		r := dual[i] / float64(demand[d]) * (1 << rateShift)
		rates[d] = int64(min(max(r, 0), 1<<62))
	}
	return rates
}

// simplex minimises cost·x such that every row of col·x is at least one, and
// returns the dual price of each row. best is what each row costs alone, zero if
// nothing supplies it; such rows are left out.
func simplex(cost, col, best []float64) []float64 {
	n := len(best)
	total := 0.0
	for _, b := range best {
		total += b
	}
	// The basis starts with one slack a row that is dearer than anything.
	basisCost, x := make([]float64, n), make([]float64, n)
	inverse := make([]float64, n*n)
	for i := range n {
		if best[i] > 0 {
			basisCost[i] = float64(total * 16)
		}
		x[i] = 1
		inverse[i*n+i] = 1
	}
	dual, step := make([]float64, n), make([]float64, n)
	const tiny = 1e-9
	// The program is small; the cap only guards against cycling on ties.
	for range 50 * (n + 1) {
		for j := range n {
			dual[j] = 0
			for i := range n {
				dual[j] += float64(basisCost[i] * inverse[i*n+j])
			}
		}
		enter, least := -1, -tiny
		for c := range cost {
			r := cost[c]
			for i := range n {
				r -= float64(dual[i] * col[c*n+i])
			}
			if r /= cost[c]; r < least {
				enter, least = c, r
			}
		}
		surplus := -1
		for i := range n {
			if r := dual[i] / (total + 1); r < least {
				enter, surplus, least = -1, i, r
			}
		}
		if enter < 0 && surplus < 0 {
			break
		}
		for i := range n {
			step[i] = 0
			if surplus >= 0 {
				step[i] = -inverse[i*n+surplus]
				continue
			}
			for j := range n {
				step[i] += float64(inverse[i*n+j] * col[enter*n+j])
			}
		}
		leave, ratio := -1, math.Inf(1)
		for i := range n {
			if step[i] > tiny {
				if r := x[i] / step[i]; r < ratio {
					leave, ratio = i, r
				}
			}
		}
		if leave < 0 {
			break
		}
		basisCost[leave] = 0
		if surplus < 0 {
			basisCost[leave] = cost[enter]
		}
		pivot := step[leave]
		for j := range n {
			inverse[leave*n+j] /= pivot
		}
		x[leave] = ratio
		for i := range n {
			if i == leave {
				continue
			}
			x[i] -= float64(ratio * step[i])
			for j := range n {
				inverse[i*n+j] -= float64(step[i] * inverse[leave*n+j])
			}
		}
	}
	for i := range dual {
		if best[i] == 0 {
			dual[i] = 0
		}
	}
	return dual
}
