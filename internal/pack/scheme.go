package pack

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// compile makes the kinds of all batches, once the menu is there.
func (v *solver) compile() {
	n := 0
	for i := range v.batches {
		n += len(v.formsOf(v.batches[i].spec))
	}
	v.kinds = slices.Grow(v.kinds, n)
	// There is room for cliques behind the resources.
	most := len(v.dims) + mostCliques
	demands := make([]int64, n*most)
	for i := range v.batches {
		b := &v.batches[i]
		b.first = int32(len(v.kinds))
		adds, repelled := b.adds, b.repelled
		forms := v.formsOf(b.spec)
		for j := range forms {
			f := &forms[j]
			k := kind{batch: int32(i), full: b.spec.demand, filter: f.filter, lost: f.lost, adds: adds}
			k.demand, demands = demands[:len(v.dims):most], demands[most:]
			for d, at := range v.dims {
				if int(at) < len(k.full) {
					k.demand[d] = k.full[at]
				}
			}
			v.constrain(&k, b, f, repelled)
			k.scheme = v.schemeOf(&k)
			k.counts = v.countsIn(&k)
			v.kinds = append(v.kinds, k)
		}
		b.last = int32(len(v.kinds))
	}
}

// constrain fills in a kind's topology.
func (v *solver) constrain(k *kind, b *batch, f *form, repelled []int32) {
	t := f.tallies
	if t == nil {
		return
	}
	for i, c := range f.spreads {
		self := int32(0)
		if t.spreads[i].sel.matches(b.class) {
			self = 1
		}
		k.spreads = append(k.spreads, spreadCheck{v.groupIDs[t.spreads[i]], c.MaxSkew, c.MinDomains, self})
	}
	k.starts = true
	for _, a := range t.affinity {
		k.attract = append(k.attract, v.groupIDs[a])
		k.starts = k.starts && a.sel.matches(b.class)
	}
	for _, list := range [...][]*tally{t.anti, t.preferred} {
		for _, a := range list {
			k.avoid = append(k.avoid, v.groupIDs[a])
		}
	}
	k.avoid = append(k.avoid, repelled...)
	note := func(g int32) {
		if v.groups[g].key < 0 {
			k.local = true
		} else {
			k.zonal = true
		}
	}
	for _, c := range k.spreads {
		note(c.group)
	}
	for _, g := range k.attract {
		note(g)
	}
	for _, g := range k.avoid {
		note(g)
	}
	for _, g := range k.adds {
		note(g)
	}
}

// plain reports whether the kind takes part in no topology constraint.
func (k *kind) plain() bool {
	return len(k.spreads)+len(k.attract)+len(k.avoid)+len(k.adds) == 0
}

// schemeOf returns the scheme that sorts nodes for the kind.
func (v *solver) schemeOf(k *kind) *scheme {
	checked := make([]bool, len(v.keys))
	used := make([]bool, len(v.keys))
	var include []int32
	use := func(g int32, check bool) {
		gr := &v.groups[g]
		if gr.key >= 0 {
			used[gr.key] = true
			checked[gr.key] = checked[gr.key] || check
		}
		if gr.t.include >= 0 {
			include = append(include, gr.t.include)
			for _, key := range gr.t.need {
				if n := v.keyOf(key); n >= 0 {
					used[n] = true
				}
			}
		}
	}
	for _, c := range k.spreads {
		use(c.group, true)
	}
	for _, g := range k.attract {
		use(g, true)
	}
	for _, g := range k.avoid {
		use(g, true)
	}
	for _, g := range k.adds {
		use(g, false)
	}
	slices.SortFunc(include, func(a, b int32) int { return cmp.Compare(v.s.filters.at(a).key, v.s.filters.at(b).key) })
	include = slices.Compact(include)
	b := binary.AppendVarint(v.buf[:0], int64(k.filter))
	for i := range used {
		b = append(b, byte(b2i(used[i])|b2i(checked[i])<<1))
	}
	for _, f := range include {
		b = binary.AppendVarint(b, int64(f))
	}
	v.buf = b
	if sc, ok := v.schemes[string(b)]; ok {
		return sc
	}
	sc := &scheme{filter: k.filter, include: include, breeds: v.menu.passes[k.filter], ids: map[string]int32{}}
	for i := range used {
		if used[i] {
			sc.keys = append(sc.keys, schemeKey{int32(i), checked[i]})
		}
	}
	v.schemes[string(b)] = sc
	v.fillScheme(sc)
	return sc
}

// fillScheme sorts the breeds and the classes of nodes into buckets.
func (v *solver) fillScheme(sc *scheme) {
	// Values are by the number of the label, so that checks find them directly.
	values := make([]int32, len(v.keys))
	for i := range values {
		values[i] = -1
	}
	passes := make([]bool, len(sc.include))
	for b := sc.breeds.next(0); b >= 0; b = sc.breeds.next(b + 1) {
		for _, k := range sc.keys {
			values[k.key] = v.menu.breeds[b].value[k.key]
		}
		for i, f := range sc.include {
			passes[i] = v.menu.passes[f].has(b)
		}
		bk := &sc.buckets[v.bucketOf(sc, values, passes)]
		bk.breeds.set(b)
		bk.some = true
	}
	s := v.s
	f := s.filters.at(sc.filter)
	sc.ofNode = make([]int32, len(s.classes.list))
classes:
	for c, nc := range s.classes.list {
		sc.ofNode[c] = unfit
		if nc.live == 0 || !f.mayFit(nc) {
			continue
		}
		for _, k := range sc.keys {
			key := v.keys[k.key]
			values[k.key] = -1
			if val, ok := nc.labels[key]; ok {
				values[k.key] = s.valuesOf(key).id(val)
			} else if _, open := nc.open[key]; open && k.checked {
				continue classes
			}
		}
		for i, f := range sc.include {
			passes[i] = s.filters.at(f).mayFit(nc)
		}
		sc.ofNode[c] = v.bucketOf(sc, values, passes)
	}
	// Buckets are tried in the order of their labels' values, whatever was seen
	// first.
	order := make([]int32, len(sc.buckets))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return v.compareBuckets(sc, &sc.buckets[a], &sc.buckets[b]) })
	place := make([]int32, len(order))
	buckets := make([]bucket, len(order))
	for i, o := range order {
		place[o] = int32(i)
		buckets[i] = sc.buckets[o]
	}
	sc.buckets = buckets
	for c, o := range sc.ofNode {
		if o >= 0 {
			sc.ofNode[c] = place[o]
		}
	}
}

// countsIn lists, for each bucket, the groups that count a pod of the kind there.
func (v *solver) countsIn(k *kind) [][]int32 {
	if len(k.adds) == 0 {
		return nil
	}
	sc := k.scheme
	out := make([][]int32, len(sc.buckets))
	for i := range sc.buckets {
		b := &sc.buckets[i]
	groups:
		for _, g := range k.adds {
			gr := &v.groups[g]
			if gr.key >= 0 && b.values[gr.key] < 0 {
				continue
			}
			if f := gr.t.include; f >= 0 {
				if !b.passes[slices.Index(sc.include, f)] {
					continue
				}
				for _, key := range gr.t.need {
					if n := v.keyOf(key); n >= 0 && b.values[n] < 0 {
						continue groups
					}
				}
			}
			out[i] = append(out[i], g)
		}
	}
	return out
}

func (v *solver) compareBuckets(sc *scheme, a, b *bucket) int {
	for _, k := range sc.keys {
		names := v.s.valuesOf(v.keys[k.key]).names
		name := func(n int32) string {
			if n < 0 {
				return ""
			}
			return names[n]
		}
		if c := cmp.Compare(name(a.values[k.key]), name(b.values[k.key])); c != 0 {
			return c
		}
	}
	for i := range a.passes {
		if c := cmp.Compare(b2i(a.passes[i]), b2i(b.passes[i])); c != 0 {
			return c
		}
	}
	return 0
}

// bucketOf returns the number of the bucket with the values.
func (v *solver) bucketOf(sc *scheme, values []int32, passes []bool) int32 {
	b := v.buf[:0]
	for _, n := range values {
		b = binary.AppendVarint(b, int64(n))
	}
	for _, p := range passes {
		b = append(b, byte(b2i(p)))
	}
	v.buf = b
	if id, ok := sc.ids[string(b)]; ok {
		return id
	}
	id := int32(len(sc.buckets))
	sc.ids[string(b)] = id
	sc.buckets = append(sc.buckets, bucket{values: slices.Clone(values), passes: slices.Clone(passes), breeds: make(bitset, v.menu.words)})
	return id
}

// mayFit reports whether the filter lets its pods onto some node of the class:
// names, which differ between its nodes, are left out.
func (f *filter) mayFit(nc *nodeClass) bool { return f.fits(nc, Set.Within) }

// couldFit is mayFit of machines on their way too that may turn out to be let.
func (f *filter) couldFit(nc *nodeClass) bool {
	return f.fits(nc, func(have, want Set) bool { return !have.Intersect(want).Empty() })
}

func (f *filter) fits(nc *nodeClass, holds func(have, want Set) bool) bool {
	if f.untolerated(nc.taints) >= 0 {
		return false
	}
	for _, c := range f.choices {
		if !slices.ContainsFunc(c, func(alt []clause) bool {
			for _, cl := range alt {
				if isNameKey(cl.key) {
					continue
				}
				have, ok := nc.open[cl.key]
				if v, has := nc.labels[cl.key]; has {
					have = OneOf(v)
				} else if !ok {
					have = Absent()
				}
				if !holds(have, cl.set) {
					return false
				}
			}
			return true
		}) {
			return false
		}
	}
	return true
}
