package pack

import (
	"encoding/binary"
	"slices"
)

// budget keeps account of what is scarce while bins are opened: pools' limits,
// the limit over all, and reservations. It also answers for minValues.
//
// A bin counts with the capacity of the entry that it is meant to become. The
// types that the node may fall back to are held to the same limits when the plan
// is written.
type budget struct {
	// left is what pools, then all together, may still have of each limited
	// dimension, and leftNodes how many nodes.
	left      []int64
	leftNodes []int64
	limited   bool
	// reserved is how many instances each reservation still has.
	reserved []int64
	// strict means that minValues are to be kept by some pool.
	strict bool
	seen   map[string]bool
	// whole is what isWhole found, by set of breeds.
	whole map[string]bool
}

func (b *budget) init(v *solver) {
	m, s := v.menu, v.s
	n := len(m.limited)
	pools := v.space.pools
	b.left = make([]int64, (len(pools)+1)*n)
	b.leftNodes = make([]int64, len(pools)+1)
	b.limited, b.strict = n > 0, false
	for p := range len(pools) + 1 {
		limits, nodes, used := limitVector(s.limits, s.axis), int64(unlimited), s.usage[""]
		if q, ok := s.limits[NodeCount]; ok {
			nodes = q
		}
		if p < len(pools) {
			ps := &pools[p]
			limits, nodes, used = ps.limits, ps.nodeLimit, s.usage[ps.pool.Name]
			if ps.pool.Usage != nil {
				used = &usage{capacity: make([]int64, s.order.width), nodes: ps.pool.Usage[NodeCount]}
				for name, q := range ps.pool.Usage {
					if i := s.axis.find(name); i >= 0 {
						used.capacity[i] = q
					}
				}
			}
			b.strict = b.strict || len(ps.minValues) > 0 && v.o.MinValues == Strict
		}
		if most, ok := v.most[int32(p)]; ok {
			// So many new ones, beside those that there are.
			if used != nil {
				most += used.nodes
			}
			nodes = min(nodes, most)
		}
		b.limited = b.limited || nodes != unlimited
		b.leftNodes[p] = nodes
		if used != nil && nodes != unlimited {
			b.leftNodes[p] -= used.nodes
		}
		for i, d := range m.limited {
			b.left[p*n+i] = unlimited
			if limits != nil && limits[d] != unlimited {
				b.left[p*n+i] = limits[d]
				if used != nil && int(d) < len(used.capacity) {
					b.left[p*n+i] -= used.capacity[d]
				}
			}
		}
	}
	b.reserved = make([]int64, len(m.reservations))
	for i, id := range m.reservations {
		b.reserved[i] = v.space.reserved(id)
	}
}

// reserved returns how many instances a reservation holds: the least that any
// offering states.
func (sp *space) reserved(id string) int64 {
	least := int64(unlimited)
	for p := range sp.pools {
		for _, r := range sp.pools[p].table.rows {
			if r.off.ReservationID == id {
				least = min(least, int64(r.off.ReservedCount))
			}
		}
	}
	return least
}

// room reports whether an entry can be had once another one, or none if it is
// negative, is given back.
func (b *budget) room(v *solver, e, instead int32) bool {
	br := &v.menu.breeds[v.menu.entries[e].breed]
	if v.only != nil && !v.only.has(int(v.menu.entries[e].breed)) {
		return false
	}
	var old *breed
	if instead >= 0 {
		old = &v.menu.breeds[v.menu.entries[instead].breed]
	}
	if br.reservation >= 0 && (old == nil || old.reservation != br.reservation) && b.reserved[br.reservation] <= 0 {
		return false
	}
	if !b.limited {
		return true
	}
	n := len(v.menu.limited)
	all := len(b.leftNodes) - 1
	for i, p := range [...]int{int(br.pool), all} {
		back := old != nil && (i == 1 || int(old.pool) == p)
		if !back && b.leftNodes[p] <= 0 {
			return false
		}
		for j := range n {
			need := v.menu.capacity[int(e)*n+j]
			if back {
				need -= v.menu.capacity[int(instead)*n+j]
			}
			// Giving back is always allowed, even if too much is in use.
			if need > 0 && need > b.left[p*n+j] {
				return false
			}
		}
	}
	return true
}

// opens reports whether one more node of an entry can be had for a kind.
func (b *budget) opens(v *solver, e int32, k *kind) bool {
	if !b.room(v, e, nowhere) {
		return false
	}
	if !b.strict {
		return true
	}
	br := v.menu.entries[e].breed
	return b.enough(v, br, nowhere, k.scheme.bucketWith(br), nil, nil, k.demand)
}

// bucketWith returns the breeds of the bucket that a breed is in.
func (sc *scheme) bucketWith(breed int32) bitset {
	for i := range sc.buckets {
		if sc.buckets[i].breeds.has(int(breed)) {
			return sc.buckets[i].breeds
		}
	}
	return nil
}

// swaps reports whether a bin may become another entry.
func (b *budget) swaps(v *solver, from, to int32) bool { return from == to || b.room(v, to, from) }

// take counts n more nodes of an entry.
func (b *budget) take(v *solver, e int32, n int64) {
	br := &v.menu.breeds[v.menu.entries[e].breed]
	if br.reservation >= 0 {
		b.reserved[br.reservation] -= n
	}
	if !b.limited {
		return
	}
	k := len(v.menu.limited)
	for _, p := range [...]int{int(br.pool), len(b.leftNodes) - 1} {
		b.leftNodes[p] -= n
		for j := range k {
			b.left[p*k+j] -= n * v.menu.capacity[int(e)*k+j]
		}
	}
}

// smaller reports whether an entry has less of what is limited than another, or
// as much and costs less.
func (b *budget) smaller(v *solver, a, c int32) bool {
	n := len(v.menu.limited)
	for j := range n {
		if x, y := v.menu.capacity[int(a)*n+j], v.menu.capacity[int(c)*n+j]; x != y {
			return x < y
		}
	}
	return v.menu.entries[a].price < v.menu.entries[c].price
}

// mixes reports whether a bin that is meant to become one breed may also turn
// out to be another: pools with minValues keep to themselves.
func (b *budget) mixes(v *solver, a, c int32) bool {
	p, q := v.menu.breeds[a].pool, v.menu.breeds[c].pool
	if v.only != nil && !v.only.has(int(c)) {
		return false
	}
	return p == q || !b.strict || len(v.space.pools[p].minValues)+len(v.space.pools[q].minValues) == 0
}

// free reports whether pods may be added to a bin without asking keeps for each.
func (b *budget) free(v *solver, bn *bin) bool {
	return !b.strict || len(v.space.pools[v.menu.breeds[v.menu.entries[bn.entry].breed].pool].minValues) == 0
}

// keeps reports whether a bin that becomes an entry still has as many distinct
// types as minValues asks, with one more pod of a kind in a bucket.
func (b *budget) keeps(v *solver, bn *bin, bucket *bucket, k *kind, e int32) bool {
	return !b.strict || b.enough(v, v.menu.entries[e].breed, bn.entry, bn.breeds, bucket.breeds, bn.load, k.demand)
}

// enough reports whether a node of a breed may turn out to be as many types as its
// pool's minValues ask: such as are in the breeds of both sets and fit both loads, in
// every zone and capacity type that its claim will list, and within the limits once
// the entry that it was meant to become, if any, is given back. A nil set is
// everything.
func (b *budget) enough(v *solver, breed, instead int32, breeds, also bitset, load, more []int64) bool {
	ps := &v.space.pools[v.menu.breeds[breed].pool]
	if len(ps.minValues) == 0 {
		return true
	}
	for i := range ps.minValues {
		mv := &ps.minValues[i]
		if b.distinct(v, breed, instead, mv, breeds, also, load, more) < mv.n {
			return false
		}
	}
	if b.isWhole(v, breed, breeds, also) {
		return true
	}
	rows := newBitset(len(ps.table.rows))
	for i := range v.menu.breeds {
		if !v.menu.joins(breed, i, breeds, also) {
			continue
		}
		for _, c := range v.menu.breeds[i].columns {
			if v.holds(c, load, more) && b.leaves(v, c, instead) {
				rows.set((int(c) - ps.first) % len(ps.table.rows))
			}
		}
	}
	return ps.whole(rows) || ps.varied(rows) != nil
}

// joins reports whether a node of a breed may turn out to be of another, which is in
// both sets.
func (m *menu) joins(breed int32, other int, breeds, also bitset) bool {
	br, o := &m.breeds[breed], &m.breeds[other]
	return o.pool == br.pool && (o.reservation < 0 || o.reservation == br.reservation) && (breeds == nil || breeds.has(other)) && (also == nil || also.has(other))
}

// holds reports whether a column has room for both loads.
func (v *solver) holds(c int32, load, more []int64) bool {
	room := v.space.at(int(c))
	for d, axis := range v.dims {
		q := more[d]
		if load != nil {
			q += load[d]
		}
		if q > room[axis] {
			return false
		}
	}
	return true
}

// leaves reports whether the limits leave what a column has once an entry, if any, is
// given back.
func (b *budget) leaves(v *solver, c, instead int32) bool {
	n := len(v.menu.limited)
	if n == 0 {
		return true
	}
	sp := v.space
	ps, _, r := sp.locate(int(c))
	pool := int(sp.poolOf(int(c)))
	for j, d := range v.menu.limited {
		need := ps.table.capacity[int(r.typ)*sp.width+int(d)]
		if instead >= 0 {
			need -= v.menu.capacity[int(instead)*n+j]
		}
		if need > 0 && (need > b.left[pool*n+j] || need > b.left[len(sp.pools)*n+j]) {
			return false
		}
	}
	return true
}

// isWhole reports whether the types in the breeds of both sets suit in every
// combination of zone and capacity type, whatever the load: a load then leaves out
// types, and never some of a type's offerings.
func (b *budget) isWhole(v *solver, breed int32, breeds, also bitset) bool {
	m := v.menu
	set := newBitset(len(m.breeds))
	for i := range m.breeds {
		if m.joins(breed, i, breeds, also) {
			set.set(i)
		}
	}
	key := make([]byte, 0, 64)
	for _, w := range set {
		key = binary.LittleEndian.AppendUint64(key, w)
	}
	if is, ok := b.whole[string(key)]; ok {
		return is
	}
	ps := &v.space.pools[m.breeds[breed].pool]
	rows, roomOf := newBitset(len(ps.table.rows)), make([][]int64, len(ps.table.types))
	is := true
	for i := set.next(0); i >= 0; i = set.next(i + 1) {
		for _, c := range m.breeds[i].columns {
			rows.set((int(c) - ps.first) % len(ps.table.rows))
			room := &roomOf[v.space.rowOf(c).typ]
			is = is && (*room == nil || slices.Equal(*room, v.space.at(int(c))))
			*room = v.space.at(int(c))
		}
	}
	is = is && ps.whole(rows)
	if b.whole == nil {
		b.whole = map[string]bool{}
	}
	b.whole[string(key)] = is
	return is
}

// distinct counts the values of a key, up to the number asked for.
func (b *budget) distinct(v *solver, breed, instead int32, mv *minValue, breeds, also bitset, load, more []int64) int {
	if mv.column == nil {
		return 0
	}
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	clear(b.seen)
	ps := &v.space.pools[v.menu.breeds[breed].pool]
	n := len(ps.table.rows)
	for i := range v.menu.breeds {
		br := &v.menu.breeds[i]
		if !v.menu.joins(breed, i, breeds, also) {
			continue
		}
		for _, c := range br.columns {
			at := mv.column.at[(int(c)-ps.first)%n]
			if at == 0 || b.seen[mv.column.values[at-1]] {
				continue
			}
			if !v.holds(c, load, more) || !b.leaves(v, c, instead) {
				continue
			}
			b.seen[mv.column.values[at-1]] = true
			if len(b.seen) >= mv.n {
				return len(b.seen)
			}
		}
	}
	return len(b.seen)
}
