package pack

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A menu is the space as the pods to be placed see it. Columns that no filter in
// use and no topology label in use tells apart form a breed; within a breed a
// node differs by room and price alone, and only entries remain: columns that no
// other column of the breed beats in both.
//
//	885 types × 8 offerings = 7,080 columns ─► 4 breeds (zones) of 60 entries
type menu struct {
	breeds []breed
	// breedOf is the breed of each column, or -1.
	breedOf []int32
	words   int // of a bitset over breeds
	dims    int
	entries []entry
	// room has a vector for each entry, over the dimensions in use.
	room []int64
	// capacity has a vector for each entry, over the dimensions that are limited.
	capacity []int64
	limited  []int32
	// passes has the breeds that each filter lets through.
	passes map[int32]bitset
	// reservations are the IDs of which breeds are numbered.
	reservations []string
	// stocks are what nodes of some breeds may become, as it is written down.
	stocks map[string]*stock
	// base is the menu without room for cliques, nil if this is it.
	base    *menu
	cliques []clique
}

// breed is a set of columns.
type breed struct {
	pool int32
	// value is what each topology label is, as its number, or -1 if absent.
	value []int32
	// first and last bound the breed's entries, the cheapest first.
	first, last int32
	// reservation is a number among the menu's, or -1.
	reservation int32
	// columns are all of them, the cheapest first.
	columns []int32
}

// entry is a column worth opening.
type entry struct {
	price  int64
	column int32
	breed  int32
}

// at returns the room of an entry.
func (m *menu) at(e int32) []int64 {
	return m.room[int(e)*m.dims : (int(e)+1)*m.dims]
}

// fits reports whether a load fits an entry.
func (m *menu) fits(e int32, load []int64) bool {
	room := m.room[int(e)*m.dims:]
	for i, q := range load {
		if q > room[i] {
			return false
		}
	}
	return true
}

// fitsSum reports whether two loads fit an entry together.
func (m *menu) fitsSum(e int32, a, b []int64) bool {
	room := m.room[int(e)*m.dims:]
	for i, q := range a {
		if q+b[i] > room[i] {
			return false
		}
	}
	return true
}

// mostMenus is how many menus are kept. Passes ask for the same few; what-ifs for one
// for each combination of filters and labels that the pods of some node have.
const mostMenus = 64

// menuFor returns the menu for filters and topology labels, one made before if the
// question was asked of late.
func (s *State) menuFor(sp *space, filters []int32, keys []string, dims []int32) *menu {
	filters = slices.Clone(filters)
	slices.Sort(filters)
	filters = slices.Compact(filters)
	var b []byte
	for _, f := range filters {
		b = appendString(binary.AppendVarint(b, int64(f)), s.filters.at(f).key)
	}
	b = append(b, 0)
	b = append(b, joined(keys)...)
	for _, d := range dims {
		b = binary.AppendVarint(b, int64(d))
	}
	if m := sp.menus[string(b)]; m != nil {
		return m
	}
	if len(sp.menus) == mostMenus {
		clear(sp.menus)
	}
	m := s.newMenu(sp, filters, keys, dims)
	sp.menus[string(b)] = m
	return m
}

func (s *State) newMenu(sp *space, filters []int32, keys []string, dims []int32) *menu {
	m := &menu{dims: len(dims), passes: map[int32]bitset{}, stocks: map[string]*stock{}}
	// Refine: columns start in one class a pool and reservation, and each filter
	// and label splits classes.
	class := make([]int32, sp.cols)
	useful := newBitset(sp.cols)
	answers := make([]bitset, len(filters))
	for i, f := range filters {
		answers[i] = sp.columns(s.filters.at(f))
		useful.or(answers[i])
	}
	next := int32(0)
	split := func(part func(c int) int32) {
		seen := map[[2]int32]int32{}
		next = 0
		for c := useful.next(0); c >= 0; c = useful.next(c + 1) {
			k := [2]int32{class[c], part(c)}
			id, ok := seen[k]
			if !ok {
				id = next
				seen[k] = id
				next++
			}
			class[c] = id
		}
	}
	var reservations symbols
	for p := range sp.pools {
		ps := &sp.pools[p]
		n := len(ps.table.rows)
		for v := range ps.variants {
			for i, r := range ps.table.rows {
				c := ps.first + v*n + i
				class[c] = int32(p) << 16
				if r.off.ReservationID != "" {
					class[c] |= 1 + reservations.id(r.off.ReservationID)
				}
			}
		}
	}
	m.reservations = reservations.names
	split(func(int) int32 { return 0 })
	for i := range filters {
		split(func(c int) int32 { return int32(b2i(answers[i].has(c))) })
	}
	values := make([][]int32, len(keys))
	for i, key := range keys {
		values[i] = sp.valueNumbers(key, s.valuesOf(key))
		split(func(c int) int32 { return values[i][c] })
	}
	m.breeds = make([]breed, next)
	m.words = (int(next) + 63) / 64
	for i := range m.breeds {
		m.breeds[i].reservation = -1
	}
	for i, f := range filters {
		b := newBitset(int(next))
		for c := answers[i].next(0); c >= 0; c = answers[i].next(c + 1) {
			b.set(int(class[c]))
		}
		m.passes[f] = b
	}
	m.breedOf = class
	for c := range class {
		if !useful.has(c) {
			class[c] = nowhere
		}
	}
	for _, c := range sp.cheapestFirst() {
		if useful.has(int(c)) {
			br := &m.breeds[class[c]]
			br.columns = append(br.columns, c)
		}
	}
	for i := range m.breeds {
		br := &m.breeds[i]
		c := int(br.columns[0])
		br.pool = sp.poolOf(c)
		_, _, r := sp.locate(c)
		if r.off.ReservationID != "" {
			br.reservation = reservations.find(r.off.ReservationID)
		}
		for k := range keys {
			br.value = append(br.value, values[k][c])
		}
	}
	m.limited = s.limitedDims(sp)
	m.list(sp, dims)
	return m
}

// limitedDims returns the places on the axis that some limit is about.
func (s *State) limitedDims(sp *space) []int32 {
	var out []int32
	all := limitVector(s.limits, s.axis)
	for i := range s.axis.names {
		some := all != nil && all[i] != unlimited
		for p := range sp.pools {
			some = some || sp.pools[p].limits != nil && sp.pools[p].limits[i] != unlimited
		}
		if some {
			out = append(out, int32(i))
		}
	}
	return out
}

// list keeps the columns of each breed that no other beats.
func (m *menu) list(sp *space, dims []int32) {
	room, capacity := make([]int64, len(dims)), make([]int64, len(m.limited))
	for i := range m.breeds {
		br := &m.breeds[i]
		br.first = int32(len(m.entries))
		ps := &sp.pools[br.pool]
	columns:
		for _, c := range br.columns {
			v := sp.at(int(c))
			for j, d := range dims {
				room[j] = v[d]
			}
			_, _, r := sp.locate(int(c))
			for j, d := range m.limited {
				capacity[j] = ps.table.capacity[int(r.typ)*sp.width+int(d)]
			}
			// Whatever was listed before is not dearer. Later entries tend to be larger,
			// so that looking back finds the better one soon.
			for e := len(m.entries) - 1; e >= int(br.first); e-- {
				if covers(m.room[e*m.dims:(e+1)*m.dims], room) && covers(capacity, m.capacity[e*len(capacity):(e+1)*len(capacity)]) {
					continue columns
				}
			}
			m.entries = append(m.entries, entry{sp.price(int(c)), c, int32(i)})
			m.room = append(m.room, room...)
			m.capacity = append(m.capacity, capacity...)
		}
		br.last = int32(len(m.entries))
	}
}

// covers reports whether a is at least b everywhere.
func covers(a, b []int64) bool {
	for i, q := range b {
		if a[i] < q {
			return false
		}
	}
	return true
}

// cheapestFirst returns all columns by price, then by what they are.
func (sp *space) cheapestFirst() []int32 {
	if sp.sorted == nil {
		sp.sorted = make([]int32, sp.cols)
		for c := range sp.sorted {
			sp.sorted[c] = int32(c)
		}
		// Columns are numbered by pool, type, price, capacity type and zone, so that
		// their numbers settle ties.
		slices.SortFunc(sp.sorted, func(a, b int32) int {
			return cmp.Or(cmp.Compare(sp.price(int(a)), sp.price(int(b))), cmp.Compare(a, b))
		})
	}
	return sp.sorted
}

// valueNumbers returns the number of a label's value in each column, or -1.
func (sp *space) valueNumbers(key string, values *symbols) []int32 {
	out := make([]int32, sp.cols)
	for p := range sp.pools {
		ps := &sp.pools[p]
		n := len(ps.table.rows)
		col := ps.table.column(key)
		for v, vr := range ps.variants {
			from := ps.first + v*n
			fixed := int32(-1)
			if col == nil {
				if vs, ok := ps.label(vr, key).Values(); ok && len(vs) == 1 {
					fixed = values.id(vs[0])
				}
			}
			for i := range n {
				out[from+i] = fixed
				if col != nil && col.at[i] > 0 {
					out[from+i] = values.id(col.values[col.at[i]-1])
				}
			}
		}
	}
	return out
}
