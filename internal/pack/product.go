package pack

import (
	"cmp"
	"slices"
)

// A claim lists types, zones and capacity types, and whoever launches it takes any
// combination of them. Where what suits the pods is not such a product, as when they
// accept one architecture or else one capacity type, or when a daemon runs in one
// zone alone, the lists are shortened until every combination suits.

// product is a set of rows by what they have in common.
type product struct {
	types             map[int32]bool
	zones, capacities map[string]bool
}

func (p *product) has(r row) bool {
	return p.types[r.typ] && p.zones[r.off.Zone] && p.capacities[r.off.CapacityType]
}

// irregular reports whether the stock's types can be had in ways that are not in
// stock, by the lists that a claim would have.
func (st *stock) irregular(sp *space, columns []int32) bool {
	p := product{types: map[int32]bool{}, zones: map[string]bool{}, capacities: map[string]bool{}}
	for i := range st.kinds {
		if p.types[st.kinds[i].typ] {
			return true // its offerings differ in room
		}
		p.types[st.kinds[i].typ] = true
	}
	for _, c := range columns {
		r := sp.rowOf(c)
		p.zones[r.off.Zone], p.capacities[r.off.CapacityType] = true, true
	}
	n := 0
	for i := st.pool.rows.next(0); i >= 0; i = st.pool.rows.next(i + 1) {
		if p.has(st.pool.table.rows[i]) {
			n++
		}
	}
	return n > len(columns)
}

// shorten drops from the chosen types, and from where and how they are bought, what
// loses the fewest offerings until every combination of the rest suits. What the bin
// is meant to be stays.
func (w *writer) shorten(st *stock) *product {
	sp, ps := w.v.space, st.pool
	suits := st.rowsOf(sp, w.chosen)
	p := ps.narrow(suits, sp.rowOf(st.kinds[w.chosen[0]].columns[0]), len(ps.minValues) > 0)
	w.chosen = slices.DeleteFunc(w.chosen, func(i int32) bool { return !p.hasAny(sp, st.kinds[i].columns) })
	return p
}

// rowsOf returns the rows of some of the stock's types.
func (st *stock) rowsOf(sp *space, kinds []int32) bitset {
	rows := newBitset(len(st.pool.table.rows))
	for _, i := range kinds {
		for _, c := range st.kinds[i].columns {
			rows.set((int(c) - st.pool.first) % len(st.pool.table.rows))
		}
	}
	return rows
}

// hasAny reports whether one of the columns is in the product.
func (p *product) hasAny(sp *space, columns []int32) bool {
	return slices.ContainsFunc(columns, func(c int32) bool { return p.has(sp.rowOf(c)) })
}

// narrow returns the product of what is in rows, without what loses the fewest of
// them until every combination is in rows that the pool has for sale. One row stays;
// types stay, if asked, as long as a zone or capacity type can go instead.
func (ps *poolSpace) narrow(rows bitset, stays row, keepTypes bool) *product {
	p := &product{types: map[int32]bool{}, zones: map[string]bool{}, capacities: map[string]bool{}}
	for i := rows.next(0); i >= 0; i = rows.next(i + 1) {
		r := ps.table.rows[i]
		p.types[r.typ], p.zones[r.off.Zone], p.capacities[r.off.CapacityType] = true, true, true
	}
	for i := ps.rows.next(0); i >= 0; i = ps.rows.next(i + 1) {
		bad := ps.table.rows[i]
		if rows.has(i) || !p.has(bad) {
			continue
		}
		var ofType, inZone, ofCapacity int
		for j := rows.next(0); j >= 0; j = rows.next(j + 1) {
			if r := ps.table.rows[j]; p.has(r) {
				ofType += int(b2i(r.typ == bad.typ))
				inZone += int(b2i(r.off.Zone == bad.off.Zone))
				ofCapacity += int(b2i(r.off.CapacityType == bad.off.CapacityType))
			}
		}
		mayType, mayZone, mayCapacity := bad.typ != stays.typ, bad.off.Zone != stays.off.Zone, bad.off.CapacityType != stays.off.CapacityType
		if keepTypes && (mayZone || mayCapacity) {
			mayType = false
		}
		switch {
		case mayType && (!mayZone || ofType <= inZone) && (!mayCapacity || ofType <= ofCapacity):
			delete(p.types, bad.typ)
		case mayCapacity && (!mayZone || ofCapacity <= inZone):
			delete(p.capacities, bad.off.CapacityType)
		default:
			delete(p.zones, bad.off.Zone)
		}
	}
	return p
}

// whole reports whether every combination of what is in rows is in rows, as far as
// it is for sale.
func (ps *poolSpace) whole(rows bitset) bool {
	p := &product{types: map[int32]bool{}, zones: map[string]bool{}, capacities: map[string]bool{}}
	for i := rows.next(0); i >= 0; i = rows.next(i + 1) {
		r := ps.table.rows[i]
		p.types[r.typ], p.zones[r.off.Zone], p.capacities[r.off.CapacityType] = true, true, true
	}
	for i := ps.rows.next(0); i >= 0; i = ps.rows.next(i + 1) {
		if !rows.has(i) && p.has(ps.table.rows[i]) {
			return false
		}
	}
	return true
}

// varied returns a product of what is in rows that has as many values as the pool's
// minValues ask, or nil if it finds none. It tries one around each way to buy, zone
// and capacity type, the one with the cheapest row first.
func (ps *poolSpace) varied(rows bitset) *product {
	var anchors []int
	for i := rows.next(0); i >= 0; i = rows.next(i + 1) {
		r := ps.table.rows[i]
		at := slices.IndexFunc(anchors, func(a int) bool {
			o := ps.table.rows[a].off
			return o.Zone == r.off.Zone && o.CapacityType == r.off.CapacityType
		})
		if at < 0 {
			anchors = append(anchors, i)
		} else if r.off.MicroUSD < ps.table.rows[anchors[at]].off.MicroUSD {
			anchors[at] = i
		}
	}
	slices.SortFunc(anchors, func(a, b int) int {
		x, y := ps.table.rows[a].off, ps.table.rows[b].off
		return cmp.Or(cmp.Compare(x.MicroUSD, y.MicroUSD), cmp.Compare(x.Zone, y.Zone), cmp.Compare(x.CapacityType, y.CapacityType))
	})
	for _, a := range anchors {
		for _, keepTypes := range [...]bool{true, false} {
			if p := ps.narrow(rows, ps.table.rows[a], keepTypes); ps.varies(rows, p) {
				return p
			}
		}
	}
	return nil
}

// varies reports whether the rows, those in the product if there is one, have as many
// values as the pool's minValues ask.
func (ps *poolSpace) varies(rows bitset, p *product) bool {
	for i := range ps.minValues {
		mv := &ps.minValues[i]
		if mv.column == nil {
			return false
		}
		seen := newBitset(len(mv.column.values) + 1)
		for j := rows.next(0); j >= 0; j = rows.next(j + 1) {
			if at := mv.column.at[j]; at > 0 && (p == nil || p.has(ps.table.rows[j])) {
				seen.set(int(at))
			}
		}
		if seen.count() < mv.n {
			return false
		}
	}
	return true
}

// vary chooses anew where the types chosen have too few values for minValues: of all
// that holds the load and is within the limits, a product that has enough. It
// reports nil, and leaves the choice, if it finds none.
func (w *writer) vary(b *bin, st *stock) *product {
	v, sp := w.v, w.v.space
	n := len(v.menu.limited)
	w.refund(b.entry)
	var fit []int32
	for i := range st.kinds {
		if k := &st.kinds[i]; holdsLoad(k.room, w.load) && (n == 0 || w.within(b.entry, st, k)) {
			fit = append(fit, int32(i))
		}
	}
	p := st.pool.varied(st.rowsOf(sp, fit))
	if p == nil {
		for _, i := range w.chosen {
			if n > 0 {
				w.grant(b.entry, st, &st.kinds[i])
			}
		}
		return nil
	}
	fit = slices.DeleteFunc(fit, func(i int32) bool { return !p.hasAny(sp, st.kinds[i].columns) })
	price := func(i int32) int64 {
		for _, c := range st.kinds[i].columns {
			if p.has(sp.rowOf(c)) {
				return sp.prices[c]
			}
		}
		return unlimited
	}
	slices.SortStableFunc(fit, func(a, b int32) int { return cmp.Compare(price(a), price(b)) })
	most := price(fit[0]) + price(fit[0])*int64(v.o.MarginPercent)/100
	w.chosen = w.chosen[:0]
	for _, i := range fit {
		if price(i) > most && len(w.chosen) >= v.o.MinTypes && w.valuesMet(st, p) {
			break
		}
		if n > 0 && !w.grant(b.entry, st, &st.kinds[i]) {
			continue
		}
		w.chosen = append(w.chosen, i)
	}
	return p
}
