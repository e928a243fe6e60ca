package pack

import "slices"

// Topology asks two kinds of questions about a place. Those about a domain that
// many nodes share have one answer for a whole bucket (open); those about the
// node itself are asked of each (localOnNode, localInBin), and once the answer is
// no it stays so while a kind is being placed.

// turns lists the buckets in which topology lets the next pod of a kind in, the
// emptiest first where spread has a say.
func (v *solver) turns(k *kind) []int32 {
	v.tried = v.tried[:0]
	for i := range k.scheme.buckets {
		if v.open(k, i) {
			v.tried = append(v.tried, int32(i))
		}
	}
	if len(v.tried) > 1 && len(k.spreads) > 0 {
		// Few buckets: insertion sort, which is stable and allocates nothing.
		for i := 1; i < len(v.tried); i++ {
			for j := i; j > 0 && v.crowd(k, v.tried[j]) < v.crowd(k, v.tried[j-1]); j-- {
				v.tried[j], v.tried[j-1] = v.tried[j-1], v.tried[j]
			}
		}
	}
	return v.tried
}

// crowd is how many pods spread sees in a bucket, where the kind's own count.
func (v *solver) crowd(k *kind, bucket int32) int32 {
	sum := int32(0)
	for i := range k.spreads {
		if g := &v.groups[k.spreads[i].group]; g.key >= 0 && k.spreads[i].self > 0 {
			sum += g.at(k.scheme.buckets[bucket].values[g.key])
		}
	}
	return sum
}

// open reports whether the checks of a kind that are not by node hold in a bucket.
func (v *solver) open(k *kind, bi int) bool {
	if !k.zonal {
		return true
	}
	b := &k.scheme.buckets[bi]
	for i := range k.spreads {
		c := &k.spreads[i]
		g := &v.groups[c.group]
		if g.key < 0 {
			continue
		}
		value := b.values[g.key]
		if value < 0 || g.at(value)+c.self-v.low(g, c.minDomains) > c.maxSkew {
			return false
		}
	}
	for _, gi := range k.avoid {
		g := &v.groups[gi]
		if g.key >= 0 && g.at(b.values[g.key]) > 0 {
			return false
		}
	}
	if k.counts != nil && !v.lax {
		for _, gi := range k.counts[bi] {
			g := &v.groups[gi]
			if g.caps == nil || g.key < 0 {
				continue
			}
			value := b.values[g.key]
			if most := g.capAt(value); most != noCap {
				low := int32(0)
				if !g.floored {
					low = v.low(g, 0)
				}
				if g.at(value)+1-low > most {
					return false
				}
			}
		}
	}
	starts := v.startsNow(k)
	for _, gi := range k.attract {
		g := &v.groups[gi]
		if g.key >= 0 && (b.values[g.key] < 0 || !starts && g.at(b.values[g.key]) == 0) {
			return false
		}
	}
	return true
}

// startsNow reports whether a kind may be the first of those that it asks for. It
// has to wait until others that it asks for have had their turn, lest they come
// first and draw it elsewhere.
func (v *solver) startsNow(k *kind) bool { return k.starts && v.start && v.none(k.attract) }

// startsHere reports whether attraction by node lets the kind onto an empty node.
func (v *solver) startsHere(k *kind) bool {
	if v.startsNow(k) {
		return true
	}
	for _, g := range k.attract {
		if v.groups[g].key < 0 {
			return false
		}
	}
	return true
}

// none reports whether no pod is counted in any of the groups.
func (v *solver) none(groups []int32) bool {
	for _, g := range groups {
		if v.groups[g].total > 0 {
			return false
		}
	}
	return true
}

// low returns the least count of any domain, as spread counts it.
func (v *solver) low(g *group, minDomains int32) int32 {
	if !g.sought {
		v.seekDomains(g)
	}
	if int32(len(g.domains)) < minDomains {
		return 0
	}
	if !g.lowValid {
		g.low, g.lowValid = 1<<30, true
		for _, d := range g.domains {
			g.low = min(g.low, g.at(d))
		}
	}
	return g.low
}

// noteFloor notes that a constraint asks for more domains than there are.
func (v *solver) noteFloor(g *group, c *spreadCheck) {
	if g.key >= 0 && !g.floored && c.minDomains > 0 && v.low(g, c.minDomains) == 0 && v.low(g, 0) > 0 {
		g.floored = true
	}
}

// seekDomains lists the domains of a group: the values of its label on nodes that
// exist and on those that could be opened, as far as they count. Domains that
// could be opened are dropped once real is set.
func (v *solver) seekDomains(g *group) {
	g.sought, g.lowValid = true, false
	g.domains = g.domains[:0]
	key := v.keys[g.key]
	seen := map[int32]bool{}
	note := func(value int32) {
		if value >= 0 && !seen[value] {
			seen[value] = true
			g.domains = append(g.domains, value)
		}
	}
	f := v.s.filters.at(g.t.include)
classes:
	for _, nc := range v.s.classes.list {
		if nc.live == 0 || !f.couldFit(nc) {
			continue
		}
		for _, need := range g.t.need {
			_, ok := nc.labels[need]
			_, open := nc.open[need]
			if !ok && !open && need != LabelHostname {
				continue classes
			}
		}
		if value, ok := nc.labels[key]; ok {
			note(v.s.valuesOf(key).id(value))
			continue
		}
		// A machine on its way counts wherever it may turn out to be.
		set, open := nc.open[key]
		if values, finite := set.Values(); open && finite {
			for _, value := range values {
				note(v.s.valuesOf(key).id(value))
			}
		}
	}
	passes := v.menu.passes[g.t.include]
breeds:
	for b := passes.next(0); b >= 0; b = passes.next(b + 1) {
		br := &v.menu.breeds[b]
		if v.real && !v.opened(int32(b)) {
			continue
		}
		for _, need := range g.t.need {
			if n := v.keyOf(need); n >= 0 && br.value[n] < 0 {
				continue breeds
			}
		}
		note(br.value[g.key])
	}
}

// opened reports whether some bin is meant to be of the breed.
func (v *solver) opened(b int32) bool {
	for i := range v.bins {
		if v.menu.entries[v.bins[i].entry].breed == b {
			return true
		}
	}
	return false
}

// startReal begins the last resort for pods that spread keeps out: domains in
// which no node exists or is opened no longer count, which is how the scheduler
// will see it. It reports whether that can change anything.
func (v *solver) startReal() bool {
	some := false
	for i := range v.batches {
		b := &v.batches[i]
		if b.placed < len(b.pods) {
			for k := b.first; k < b.last; k++ {
				some = some || len(v.kinds[k].spreads) > 0
			}
		}
	}
	if !some {
		return false
	}
	v.setReal(true)
	return true
}

// setReal says whether domains without nodes count; which there are is found anew.
func (v *solver) setReal(on bool) {
	v.real = on
	for i := range v.groups {
		v.groups[i].sought = false
	}
}

// stayReal confines all nodes to the domains that count now, lest one of them turns
// out to be in another and makes it count.
func (v *solver) stayReal() {
	v.only = make(bitset, v.menu.words)
	for b := range v.menu.breeds {
		v.only.set(b)
	}
	for i := range v.groups {
		g := &v.groups[i]
		if g.key < 0 || !g.sought {
			continue
		}
		for b := range v.menu.breeds {
			// Nodes that the constraint passes over make no domain count.
			if f := g.t.include; f >= 0 && !v.menu.passes[f].has(b) {
				continue
			}
			if value := v.menu.breeds[b].value[g.key]; value >= 0 && !slices.Contains(g.domains, value) {
				v.only.clear(b)
			}
		}
	}
	// What is open already is where it is.
	for i := range v.bins {
		v.only.set(int(v.menu.entries[v.bins[i].entry].breed))
	}
	for i := range v.bins {
		v.bins[i].breeds.and(v.only)
	}
}

// admitsLocal reports whether the checks of a kind that are by node hold where
// count says how many pods of a group are.
func (v *solver) admitsLocal(k *kind, count func(g int32) int32) bool {
	for i := range k.spreads {
		c := &k.spreads[i]
		if v.groups[c.group].key < 0 && count(c.group)+c.self > c.maxSkew {
			return false
		}
	}
	for _, g := range k.avoid {
		if v.groups[g].key < 0 && count(g) > 0 {
			return false
		}
	}
	if len(k.attract) > 0 && !v.startsNow(k) {
		for _, g := range k.attract {
			if v.groups[g].key < 0 && count(g) == 0 {
				return false
			}
		}
	}
	return true
}

// localOnNode applies the checks that are by node to an existing node.
func (v *solver) localOnNode(k *kind, slot int32) bool {
	if _, ok := v.s.nodes[slot].Labels[LabelHostname]; !ok {
		for i := range k.spreads {
			if v.groups[k.spreads[i].group].key < 0 {
				return false
			}
		}
		for _, g := range k.attract {
			if v.groups[g].key < 0 {
				return false
			}
		}
		for _, g := range k.avoid {
			if v.groups[g].t.label == thisNode && v.groups[g].onNode(slot) > 0 {
				return false
			}
		}
		return true
	}
	if !v.lax {
		for _, gi := range k.adds {
			g := &v.groups[gi]
			if most, ok := g.nodeCaps[slot]; ok && g.onNode(slot)+1 > most {
				return false
			}
		}
	}
	return v.admitsLocal(k, func(g int32) int32 { return v.groups[g].onNode(slot) })
}

// localInBin applies the checks that are by node to a bin.
func (v *solver) localInBin(k *kind, b *bin) bool {
	for i := range k.spreads {
		c := &k.spreads[i]
		if v.groups[c.group].key < 0 && b.count(c.group)+c.self > c.maxSkew {
			return false
		}
	}
	for _, g := range k.avoid {
		if v.groups[g].key < 0 && b.count(g) > 0 {
			return false
		}
	}
	if len(k.attract) > 0 && !v.startsNow(k) {
		for _, g := range k.attract {
			if v.groups[g].key < 0 && b.count(g) == 0 {
				return false
			}
		}
	}
	if len(k.adds) > 0 && !v.lax {
		for i := range b.local {
			l := &b.local[i]
			if l.most != noCap && l.n+1 > l.most && slices.Contains(k.adds, l.group) {
				return false
			}
		}
	}
	return true
}

// single reports whether no check depends on pods of the kind placed before.
func (k *kind) single() bool { return len(k.spreads)+len(k.attract)+len(k.avoid)+len(k.adds) == 0 }

// count returns how many pods of a group are in the bin.
func (b *bin) count(group int32) int32 {
	for i := range b.local {
		if b.local[i].group == group {
			return b.local[i].n
		}
	}
	return 0
}

func (b *bin) add(group, n int32) {
	for i := range b.local {
		if b.local[i].group == group {
			b.local[i].n += n
			return
		}
	}
	b.local = append(b.local, localCount{group, n, noCap})
}

// holdTo notes the maximum skew of a pod in the bin.
func (b *bin) holdTo(group, maxSkew int32) {
	b.add(group, 0)
	for i := range b.local {
		if l := &b.local[i]; l.group == group {
			l.most = min(l.most, maxSkew)
		}
	}
}

// add counts n more pods at a value.
func (g *group) add(value, n int32) {
	for int(value) >= len(g.counts) {
		g.counts = append(g.counts, 0)
	}
	if n < 0 || g.counts[value] <= g.low {
		g.lowValid = false
	}
	g.counts[value] += n
	g.total += n
}
