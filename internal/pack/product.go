package pack

import "slices"

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
	p := &product{types: map[int32]bool{}, zones: map[string]bool{}, capacities: map[string]bool{}}
	suits := newBitset(len(ps.table.rows))
	for _, i := range w.chosen {
		k := &st.kinds[i]
		p.types[k.typ] = true
		for _, c := range k.columns {
			r := sp.rowOf(c)
			p.zones[r.off.Zone], p.capacities[r.off.CapacityType] = true, true
			suits.set((int(c) - ps.first) % len(ps.table.rows))
		}
	}
	meant := sp.rowOf(st.kinds[w.chosen[0]].columns[0])
	for i := ps.rows.next(0); i >= 0; i = ps.rows.next(i + 1) {
		bad := ps.table.rows[i]
		if suits.has(i) || !p.has(bad) {
			continue
		}
		var ofType, inZone, ofCapacity int
		for j := suits.next(0); j >= 0; j = suits.next(j + 1) {
			if r := ps.table.rows[j]; p.has(r) {
				ofType += int(b2i(r.typ == bad.typ))
				inZone += int(b2i(r.off.Zone == bad.off.Zone))
				ofCapacity += int(b2i(r.off.CapacityType == bad.off.CapacityType))
			}
		}
		mayType, mayZone, mayCapacity := bad.typ != meant.typ, bad.off.Zone != meant.off.Zone, bad.off.CapacityType != meant.off.CapacityType
		if len(ps.minValues) > 0 && (mayZone || mayCapacity) {
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
	w.chosen = slices.DeleteFunc(w.chosen, func(i int32) bool {
		k := &st.kinds[i]
		return !slices.ContainsFunc(k.columns, func(c int32) bool { return p.has(sp.rowOf(c)) })
	})
	return p
}
