package pack

import (
	"cmp"
	"math"
	"slices"
)

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
	k.room = make([]int64, m.v.menu.dims)
	k.count = make([]int64, len(m.rows))
	// The going rates, all resources alike, and leanings of both towards and away
	// from each resource.
	rates, alike := make([]float64, len(k.room)), make([]float64, len(k.room))
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
