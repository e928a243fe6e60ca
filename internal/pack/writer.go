package pack

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// writer writes bins down as new nodes. What nodes of a kind have in common is
// computed once and kept with the menu: the types that they may become, labels,
// requirements.
type writer struct {
	v      *solver
	buf    []byte
	load   []int64
	least  []int64
	chosen []int32
	// columns and wares are scratch: the columns in stock and the ware of each.
	columns, wares []int32
	// capacity and granted are what a type has of the limited resources, and what a
	// node was granted of them beyond what it is meant to become.
	capacity, granted []int64
	// unmet means that the last node written hasn't the types that minValues ask for.
	unmet bool
}

// stock is what nodes of one pool may become that suit the same breeds and settle
// the pool's open labels alike.
type stock struct {
	pool   *poolSpace
	labels map[string]string
	// sets are the requirements but for type, zone and capacity type.
	sets  map[string]Set
	kinds []ware
	// zones and capacities are the values that a ware's masks are about.
	zones, capacities []string
	// uneven is true if not every combination of what is in stock is in stock.
	uneven bool
}

// ware is an instance type in stock, with all offerings that suit.
type ware struct {
	typ   int32
	price int64
	// columns are the offerings, the cheapest first. Most types are never chosen, so
	// that the option is written when first asked for.
	columns []int32
	option  Option
	// room is what pods may use.
	room              []int64
	zones, capacities uint64
}

// optionOf returns what a node may become as the plan states it.
func (w *writer) optionOf(st *stock, k *ware) Option {
	if k.option.Offerings == nil {
		k.option = Option{Type: st.pool.table.types[k.typ].Name, Offerings: make([]Offering, len(k.columns))}
		for i, c := range k.columns {
			k.option.Offerings[i] = *w.v.space.rowOf(c).off
		}
	}
	return k.option
}

// mostStocks is how many stocks a menu keeps: one for each set of zones or the like
// that pods are confined to is usual.
const mostStocks = 256

// stockFor returns the stock of a bin.
func (w *writer) stockFor(b *bin) *stock {
	v := w.v
	sp, m := v.space, v.menu
	en := &m.entries[b.entry]
	br := &m.breeds[en.breed]
	ps, vr, _ := sp.locate(int(en.column))
	rows := len(ps.table.rows)
	variantAt := (int(en.column) - ps.first) / rows
	key := binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(w.buf[:0], int64(br.pool)), int64(variantAt)), int64(br.reservation))
	for _, word := range b.breeds {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	w.buf = key
	if st, ok := m.stocks[string(key)]; ok {
		return st
	}
	if len(m.stocks) == mostStocks {
		clear(m.stocks)
	}
	st := &stock{pool: ps, labels: map[string]string{}, sets: map[string]Set{}}
	m.stocks[string(key)] = st
	maps.Copy(st.labels, ps.pool.Labels)
	for _, cl := range clauses(ps.pool.Requirements) {
		st.sets[cl.key] = cl.set
	}
	for key, set := range vr {
		_, stated := ps.sets[key]
		if values, ok := set.Values(); ok && len(values) == 1 {
			st.sets[key] = set
			st.labels[key] = values[0]
		} else if ok && stated {
			st.sets[key] = set
		}
	}
	zones, capacities := &symbols{}, &symbols{}
	w.columns, w.wares = w.columns[:0], w.wares[:0]
	at := make([]int32, len(ps.table.types))
	counts := make([]int32, 0, len(ps.table.types))
	for _, c := range sp.cheapestFirst() {
		from := m.breedOf[c]
		if from < 0 || !b.breeds.has(int(from)) || (int(c)-ps.first)/rows != variantAt {
			continue
		}
		if other := &m.breeds[from]; other.pool != br.pool || other.reservation >= 0 && other.reservation != br.reservation {
			continue
		}
		r := sp.rowOf(c)
		// Columns of one type differ in room if a daemon runs in some zones alone.
		i := int(at[r.typ]) - 1
		if i >= 0 && !slices.Equal(st.kinds[i].room, sp.at(int(c))) {
			i = slices.IndexFunc(st.kinds, func(k ware) bool { return k.typ == r.typ && slices.Equal(k.room, sp.at(int(c))) })
		}
		if i < 0 {
			i = len(st.kinds)
			at[r.typ] = int32(i) + 1
			st.kinds = append(st.kinds, ware{typ: r.typ, price: sp.prices[c], room: sp.at(int(c))})
			counts = append(counts, 0)
		}
		k := &st.kinds[i]
		k.zones |= 1 << min(zones.id(r.off.Zone), 63)
		k.capacities |= 1 << min(capacities.id(r.off.CapacityType), 63)
		counts[i]++
		w.columns, w.wares = append(w.columns, c), append(w.wares, int32(i))
	}
	all := make([]int32, len(w.columns))
	for i := range st.kinds {
		st.kinds[i].columns, all = all[:0:counts[i]], all[counts[i]:]
	}
	for n, c := range w.columns {
		k := &st.kinds[w.wares[n]]
		k.columns = append(k.columns, c)
	}
	st.zones, st.capacities = zones.names, capacities.names
	st.uneven = st.irregular(sp, w.columns)
	return st
}

// write writes a bin down without its pods.
func (w *writer) write(b *bin) NewNode {
	v := w.v
	sp, m := v.space, v.menu
	en := &m.entries[b.entry]
	st := w.stockFor(b)
	node := NewNode{Pool: st.pool.pool.Name, Labels: maps.Clone(st.labels)}
	if r := m.breeds[en.breed].reservation; r >= 0 {
		node.ReservationID = m.reservations[r]
	}
	w.load = slices.Grow(w.load[:0], sp.width)[:sp.width]
	clear(w.load)
	for i, d := range v.dims {
		w.load[d] = b.load[i]
	}
	w.choose(b, st)
	var allowed *product
	if st.uneven {
		allowed = w.shorten(st)
	}
	w.unmet = false
	if !w.valuesMet(st, allowed) {
		if other := w.vary(b, st); other != nil {
			allowed = other
		} else {
			w.unmet = true
			node.Relaxed = v.o.MinValues == BestEffort
		}
	}
	node.Options = make([]Option, 0, len(w.chosen))
	types := make([]int32, 0, len(w.chosen))
	var zones, capacities uint64
	w.least = slices.Grow(w.least[:0], sp.width)[:sp.width]
	for n, i := range w.chosen {
		k := &st.kinds[i]
		o := w.optionOf(st, k)
		if allowed != nil {
			o.Offerings = slices.DeleteFunc(slices.Clone(o.Offerings), func(f Offering) bool { return !allowed.has(row{k.typ, &f}) })
		}
		if at := slices.Index(types, k.typ); at >= 0 {
			node.Options[at].Offerings = slices.Concat(node.Options[at].Offerings, o.Offerings)
		} else {
			node.Options = append(node.Options, o)
			types = append(types, k.typ)
		}
		zones, capacities = zones|k.zones, capacities|k.capacities
		// What is allocatable and not room is what daemons ask for.
		for d, q := range k.room {
			if q = st.pool.table.allocatable[int(k.typ)*sp.width+d] - q; n == 0 || q < w.least[d] {
				w.least[d] = q
			}
		}
	}
	node.MicroUSD = node.Options[0].Offerings[0].MicroUSD
	slices.Sort(types)
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = st.pool.table.types[t].Name
	}
	inZones, ofCapacities := masked(st.zones, zones), masked(st.capacities, capacities)
	if allowed != nil {
		inZones = slices.DeleteFunc(inZones, func(z string) bool { return !allowed.zones[z] })
		ofCapacities = slices.DeleteFunc(ofCapacities, func(c string) bool { return !allowed.capacities[c] })
	}
	node.Requirements = st.requirements(names, inZones, ofCapacities, node.Relaxed)
	for d, q := range w.load {
		w.least[d] += q
	}
	some := 0
	for d, q := range w.least {
		if q > 0 && !v.s.axis.isDriver(d) {
			some++
		}
	}
	node.Requests = make(Resources, some)
	for d, q := range w.least {
		if q > 0 && !v.s.axis.isDriver(d) {
			node.Requests[v.s.axis.names[d]] = q
		}
	}
	return node
}

// masked returns the names in a mask. Names beyond the last bit share it.
func masked(names []string, mask uint64) []string {
	var out []string
	for i, name := range names {
		if mask>>min(i, 63)&1 != 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// requirements writes the stock's requirements with the values given.
func (st *stock) requirements(types, zones, capacities []string, relaxed bool) []Requirement {
	out := make([]Requirement, 0, len(st.sets)+3)
	for _, fixed := range [...]struct {
		key    string
		values []string
	}{{LabelCapacityType, capacities}, {LabelInstanceType, types}, {LabelZone, zones}} {
		out = append(out, Requirement{Key: fixed.key, Operator: In, Values: fixed.values})
	}
	for key, set := range st.sets {
		if key != LabelCapacityType && key != LabelInstanceType && key != LabelZone {
			out = append(out, set.Requirements(key)...)
		}
	}
	slices.SortStableFunc(out, func(a, b Requirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator))
	})
	for i := range st.pool.minValues {
		mv := &st.pool.minValues[i]
		if at := slices.IndexFunc(out, func(r Requirement) bool { return r.Key == mv.key }); at >= 0 && !relaxed {
			out[at].MinValues = mv.n
		}
	}
	return out
}

// choose selects the types that a node may fall back to: those at a price within
// the margin, enough of them whatever they cost, enough values for minValues, all
// within the limits. The type that the bin is meant to become comes first.
func (w *writer) choose(b *bin, st *stock) {
	v := w.v
	e := b.entry
	price := v.menu.entries[e].price
	most := price + price*int64(v.o.MarginPercent)/100
	_, _, meant := v.space.locate(int(v.menu.entries[e].column))
	w.chosen = w.chosen[:0]
	n := len(v.menu.limited)
	w.capacity = slices.Grow(w.capacity[:0], n)[:n]
	w.granted = slices.Grow(w.granted[:0], n)[:n]
	clear(w.granted)
	enough := false
	for i := range st.kinds {
		k := &st.kinds[i]
		if k.price > most && len(w.chosen) >= v.o.MinTypes {
			if enough = enough || w.valuesMet(st, nil); enough {
				break
			}
		}
		// What is cheaper would have been taken but for a limit or a reservation.
		if k.price < price {
			continue
		}
		if !holdsLoad(k.room, w.load) || n > 0 && !w.grant(e, st, k) {
			continue
		}
		w.chosen = append(w.chosen, int32(i))
	}
	// The bin's own type leads if others cost the same.
	for n, i := range w.chosen {
		if st.kinds[i].typ == meant.typ {
			copy(w.chosen[1:n+1], w.chosen[:n])
			w.chosen[0] = i
			break
		}
	}
}

// holdsLoad reports whether a load over the whole axis fits into room.
func holdsLoad(room, load []int64) bool {
	for d, q := range load {
		if q > 0 && q > room[d] {
			return false
		}
	}
	return true
}

// within reports whether the limits leave what a type has more than the node was
// granted so far, once every bin is what it is meant to be.
func (w *writer) within(e int32, st *stock, k *ware) bool {
	v := w.v
	n := len(v.menu.limited)
	pool, all := int(v.menu.breeds[v.menu.entries[e].breed].pool), len(v.space.pools)
	left := v.budget.left
	for j, d := range v.menu.limited {
		w.capacity[j] = st.pool.table.capacity[int(k.typ)*v.space.width+int(d)]
		more := w.capacity[j] - v.menu.capacity[int(e)*n+j] - w.granted[j]
		if more > 0 && (more > left[pool*n+j] || more > left[all*n+j]) {
			return false
		}
	}
	return true
}

// grant keeps the fallback types of all new nodes within the limits: whatever the
// nodes turn out to be, their pools do not exceed them. It takes what a type has
// beyond what the node was granted, and reports whether there is as much.
func (w *writer) grant(e int32, st *stock, k *ware) bool {
	if !w.within(e, st, k) {
		return false
	}
	n := len(w.granted)
	for j := range n {
		if more := w.capacity[j] - w.v.menu.capacity[int(e)*n+j] - w.granted[j]; more > 0 {
			w.granted[j] += more
			w.give(e, j, -more)
		}
	}
	return true
}

// refund takes back what the node was granted.
func (w *writer) refund(e int32) {
	for j, q := range w.granted {
		w.give(e, j, q)
		w.granted[j] = 0
	}
}

// give returns to the limits of an entry's pool and of all what q is of a limited
// dimension.
func (w *writer) give(e int32, j int, q int64) {
	v := w.v
	n := len(v.menu.limited)
	v.budget.left[int(v.menu.breeds[v.menu.entries[e].breed].pool)*n+j] += q
	v.budget.left[len(v.space.pools)*n+j] += q
}

// valuesMet reports whether the chosen types, of those that are allowed if that is
// not nil, have as many distinct values as minValues asks.
func (w *writer) valuesMet(st *stock, allowed *product) bool {
	return len(st.pool.minValues) == 0 || st.pool.varies(st.rowsOf(w.v.space, w.chosen), allowed)
}
