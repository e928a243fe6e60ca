package pack

import (
	"cmp"
	"maps"
	"slices"
)

// report writes the solution down.
func (v *solver) report() *Plan {
	s := v.s
	plan := &Plan{}
	taken := make([]int, len(v.batches))
	names := func(kind, n int32) []string {
		bi := v.kinds[kind].batch
		b := &v.batches[bi]
		out := make([]string, n)
		for i := range out {
			out[i] = s.pods[b.pods[taken[bi]+i]].name
		}
		taken[bi] += int(n)
		return out
	}
	for _, on := range v.onNodes {
		for _, pod := range names(on.kind, on.n) {
			plan.Assignments = append(plan.Assignments, Assignment{pod, s.nodes[on.node].Name})
		}
	}
	slices.SortFunc(plan.Assignments, func(a, b Assignment) int { return cmp.Compare(a.Pod, b.Pod) })
	// Bins are written in an order that depends on what is in them alone.
	v.rightSize()
	order := v.binOrder()
	trim := v.newTrim()
	for _, i := range order {
		b := &v.bins[i]
		n := v.writeBin(b, trim)
		for _, p := range b.parts {
			n.Pods = append(n.Pods, names(p.kind, p.n)...)
		}
		slices.Sort(n.Pods)
		plan.MicroUSD += n.MicroUSD
		plan.NewNodes = append(plan.NewNodes, n)
	}
	slices.SortFunc(plan.NewNodes, func(a, b NewNode) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.MicroUSD, b.MicroUSD), slices.Compare(a.Pods, b.Pods))
	})
	plan.LowerBound = v.bound()
	for i := range v.batches {
		b := &v.batches[i]
		if b.placed == len(b.pods) {
			continue
		}
		reasons := v.explain(b)
		for _, p := range b.pods[b.placed:] {
			plan.Unschedulable = append(plan.Unschedulable, Unschedulable{s.pods[p].name, reasons})
		}
	}
	slices.SortFunc(plan.Unschedulable, func(a, b Unschedulable) int { return cmp.Compare(a.Pod, b.Pod) })
	return plan
}

// binOrder sorts the bins by what they are meant to become, then by content.
func (v *solver) binOrder() []int32 {
	rank := make([]int32, len(v.batches))
	for i, b := range v.order {
		rank[b] = int32(i)
	}
	order := make([]int32, 0, len(v.bins))
	for i := range v.bins {
		b := &v.bins[i]
		if len(b.parts) == 0 {
			continue
		}
		slices.SortFunc(b.parts, func(x, y part) int {
			return cmp.Or(cmp.Compare(rank[v.kinds[x.kind].batch], rank[v.kinds[y.kind].batch]), cmp.Compare(x.kind, y.kind), cmp.Compare(x.bucket, y.bucket))
		})
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &v.bins[i], &v.bins[j]
		return cmp.Or(cmp.Compare(a.entry, b.entry), slices.CompareFunc(a.parts, b.parts, func(x, y part) int {
			return cmp.Or(cmp.Compare(rank[v.kinds[x.kind].batch], rank[v.kinds[y.kind].batch]),
				cmp.Compare(x.kind, y.kind), cmp.Compare(x.bucket, y.bucket), cmp.Compare(y.n, x.n))
		}))
	})
	return order
}

// trim keeps the fallback types of all new nodes within the limits: whatever the
// nodes turn out to be, their pools do not exceed them.
type trim struct {
	v *solver
	// left is what limits leave once every bin is what it is meant to be.
	left   []int64
	entry  []int64
	limits bool
}

func (v *solver) newTrim() *trim {
	return &trim{v: v, left: v.budget.left, limits: v.budget.limited}
}

// allows reports whether a bin meant to be entry e may become a column whose
// capacity is given, within what more has been granted to it so far.
func (t *trim) allows(pool int32, e int32, capacity, granted []int64) bool {
	n := len(t.v.menu.limited)
	for j := range n {
		more := capacity[j] - t.v.menu.capacity[int(e)*n+j] - granted[j]
		if more > 0 && (more > t.left[int(pool)*n+j] || more > t.left[len(t.v.space.pools)*n+j]) {
			return false
		}
	}
	return true
}

// grant takes what a column has more than the bin was granted so far.
func (t *trim) grant(pool int32, e int32, capacity, granted []int64) {
	n := len(t.v.menu.limited)
	for j := range n {
		if more := capacity[j] - t.v.menu.capacity[int(e)*n+j] - granted[j]; more > 0 {
			granted[j] += more
			t.left[int(pool)*n+j] -= more
			t.left[len(t.v.space.pools)*n+j] -= more
		}
	}
}

// writeBin writes a bin down without its pods.
func (v *solver) writeBin(b *bin, t *trim) NewNode {
	sp, m := v.space, v.menu
	en := &m.entries[b.entry]
	br := &m.breeds[en.breed]
	ps, vr, _ := sp.locate(int(en.column))
	variantAt := (int(en.column) - ps.first) / len(ps.table.rows)
	node := NewNode{Pool: ps.pool.Name, Labels: map[string]string{}, MicroUSD: en.price, Requests: Resources{}}
	if br.reservation >= 0 {
		node.ReservationID = m.reservations[br.reservation]
	}
	maps.Copy(node.Labels, ps.pool.Labels)
	// Candidates: columns of the same pool and variant, in breeds that suit, that
	// fit the load; reserved ones only if the bin is to have one.
	var columns []int32
	load := make([]int64, sp.width)
	for i, d := range v.dims {
		load[d] = b.load[i]
	}
	for i := b.breeds.next(0); i >= 0; i = b.breeds.next(i + 1) {
		other := &m.breeds[i]
		if other.pool != br.pool || other.reservation >= 0 && other.reservation != br.reservation {
			continue
		}
		for _, c := range other.columns {
			if (int(c)-ps.first)/len(ps.table.rows) != variantAt || !v.holdsLoad(int(c), load) {
				continue
			}
			columns = append(columns, c)
		}
	}
	slices.SortFunc(columns, func(x, y int32) int {
		return cmp.Or(cmp.Compare(sp.prices[x], sp.prices[y]), cmp.Compare(x, y))
	})
	keep := v.selectColumns(ps, b.entry, columns, t)
	node.Relaxed = v.o.MinValues == BestEffort && !ps.valuesMet(keep)
	sets := map[string]Set{}
	for _, cl := range clauses(ps.pool.Requirements) {
		sets[cl.key] = cl.set
	}
	for _, key := range slices.Sorted(maps.Keys(vr)) {
		_, stated := ps.sets[key]
		if values, ok := vr[key].Values(); ok && len(values) == 1 {
			sets[key] = vr[key]
			node.Labels[key] = values[0]
		} else if ok && stated {
			sets[key] = vr[key]
		}
	}
	var types, zones, kinds []string
	index := map[int32]int{}
	least := make([]int64, sp.width)
	for i, c := range keep {
		r := ps.table.rows[(int(c)-ps.first)%len(ps.table.rows)]
		at, ok := index[r.typ]
		if !ok {
			at = len(node.Options)
			index[r.typ] = at
			node.Options = append(node.Options, Option{Type: ps.table.types[r.typ].Name})
			types = append(types, ps.table.types[r.typ].Name)
		}
		node.Options[at].Offerings = append(node.Options[at].Offerings, *r.off)
		zones, kinds = append(zones, r.off.Zone), append(kinds, r.off.CapacityType)
		for d := range least {
			if over := ps.table.allocatable[int(r.typ)*sp.width+d] - sp.at(int(c))[d]; i == 0 || over < least[d] {
				least[d] = over
			}
		}
	}
	sets[LabelInstanceType], sets[LabelZone], sets[LabelCapacityType] = OneOf(types...), OneOf(zones...), OneOf(kinds...)
	for _, key := range slices.Sorted(maps.Keys(sets)) {
		reqs := sets[key].Requirements(key)
		for i := range ps.minValues {
			if ps.minValues[i].key == key && len(reqs) > 0 && !node.Relaxed {
				reqs[0].MinValues = ps.minValues[i].n
			}
		}
		node.Requirements = append(node.Requirements, reqs...)
	}
	for _, p := range b.parts {
		for d, q := range v.kinds[p.kind].full {
			least[d] += q * int64(p.n)
		}
	}
	for d, q := range least {
		if q > 0 && !v.s.axis.isDriver(d) {
			node.Requests[v.s.axis.names[d]] = q
		}
	}
	return node
}

// holdsLoad reports whether a load over the whole axis fits a column.
func (v *solver) holdsLoad(c int, load []int64) bool {
	for d, room := range v.space.at(c) {
		if load[d] > 0 && load[d] > room {
			return false
		}
	}
	return true
}

// selectColumns keeps the columns that a node may fall back to: those at a price
// within the margin, enough types whatever they cost, enough values for
// minValues, all within the limits. The entry's own price comes first.
func (v *solver) selectColumns(ps *poolSpace, e int32, columns []int32, t *trim) []int32 {
	n := len(v.menu.limited)
	capacity, granted := make([]int64, n), make([]int64, n)
	pool := v.menu.breeds[v.menu.entries[e].breed].pool
	price := v.menu.entries[e].price
	most := price + price*int64(v.o.MarginPercent)/100
	types := map[int32]bool{}
	var keep []int32
	for _, c := range columns {
		// What is cheaper fits as well but was not to be had within the limits.
		if v.space.prices[c] < price {
			continue
		}
		r := ps.table.rows[(int(c)-ps.first)%len(ps.table.rows)]
		if v.space.prices[c] > most && !types[r.typ] && len(types) >= v.o.MinTypes && ps.valuesMet(keep) {
			continue
		}
		if t.limits {
			for j, d := range v.menu.limited {
				capacity[j] = ps.table.capacity[int(r.typ)*v.space.width+int(d)]
			}
			if !t.allows(pool, e, capacity, granted) {
				continue
			}
			t.grant(pool, e, capacity, granted)
		}
		types[r.typ] = true
		keep = append(keep, c)
	}
	return keep
}

// valuesMet reports whether columns have as many distinct values as minValues
// asks.
func (ps *poolSpace) valuesMet(columns []int32) bool {
	for i := range ps.minValues {
		mv := &ps.minValues[i]
		seen := map[uint16]bool{}
		if mv.column != nil {
			for _, c := range columns {
				if at := mv.column.at[(int(c)-ps.first)%len(ps.table.rows)]; at > 0 {
					seen[at] = true
				}
			}
		}
		if len(seen) < mv.n {
			return false
		}
	}
	return true
}
