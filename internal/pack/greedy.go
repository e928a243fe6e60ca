package pack

import (
	"math/bits"
	"slices"
)

// turns lists the buckets in which topology lets the next pod of a kind in, the
// emptiest first where spread has a say.
func (v *solver) turns(k *kind) []int16 {
	v.tried = v.tried[:0]
	for i := range k.scheme.buckets {
		if v.open(k, i) {
			v.tried = append(v.tried, int16(i))
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

// crowd is how many pods spread sees in a bucket.
func (v *solver) crowd(k *kind, bucket int16) int32 {
	sum := int32(0)
	for i := range k.spreads {
		if g := &v.groups[k.spreads[i].group]; g.key >= 0 {
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
		if nc.live == 0 || !f.mayFit(nc) {
			continue
		}
		for _, need := range g.t.need {
			if _, ok := nc.labels[need]; !ok && need != LabelHostname {
				continue classes
			}
		}
		if value, ok := nc.labels[key]; ok {
			note(v.s.valuesOf(key).id(value))
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
	v.real = true
	for i := range v.groups {
		v.groups[i].sought = false
	}
	return true
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

// count returns how many pods of a group are in the bin.
func (b *bin) count(group int32) int32 {
	for i := range b.local {
		if b.local[i].group == group {
			return b.local[i].n
		}
	}
	return 0
}

// fill returns how many loads of demand fit into room beside load, up to most.
func fill(room, load, demand []int64, most int32) int32 {
	for d, q := range demand {
		if q > 0 {
			left := room[d]
			if load != nil {
				left -= load[d]
			}
			if left < q {
				return 0
			}
			if int64(most)*q > left {
				most = int32(left / q)
			}
		}
	}
	return most
}

// onNode puts up to most pods of a kind on one existing node.
func (v *solver) onNode(k, most int32) int32 {
	kd := &v.kinds[k]
	for _, bi := range v.turns(kd) {
		slot := v.nextNode(kd, bi)
		if slot < 0 {
			continue
		}
		n := int32(1)
		if kd.single() {
			n = v.fillNode(kd, slot, most)
		}
		v.takeNode(k, int32(bi), slot, n)
		return n
	}
	return 0
}

// single reports whether no check depends on pods of the kind placed before.
func (k *kind) single() bool { return len(k.spreads)+len(k.attract)+len(k.avoid)+len(k.adds) == 0 }

func (v *solver) fillNode(k *kind, slot, most int32) int32 {
	room := v.s.room(slot)
	for d, q := range k.full {
		if q > 0 {
			most = min(most, int32(min(room[d]/q, 1<<30)))
		}
	}
	return most
}

// nextNode returns the first node, from where the kind's search has come, that
// will do in a bucket, or -1.
func (v *solver) nextNode(k *kind, bi int16) int32 {
	s := v.s
	c := &k.cursors[bi]
	named := s.filters.at(k.filter).named
	width := s.order.width
nodes:
	for at := c.node; at < len(s.order.slots); at++ {
		if at%blockSize == 0 || at == c.node {
			most := s.order.most[at/blockSize*width:]
			for d, q := range k.full {
				if q > 0 && q > most[d] {
					at |= blockSize - 1
					continue nodes
				}
			}
		}
		slot := s.order.slots[at]
		nd := &s.nodes[slot]
		if k.scheme.ofNode[nd.class] != bi || nd.Closed || v.shutAny && v.shut.has(int(slot)) {
			continue
		}
		room := s.free[int(slot)*width:]
		for d, q := range k.full {
			if q > room[d] && q > 0 {
				continue nodes
			}
		}
		if named && !s.admits(k.filter, slot) {
			continue
		}
		if k.local && !v.localOnNode(k, slot) {
			continue
		}
		c.node = at
		return slot
	}
	c.node = len(s.order.slots)
	return -1
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

// takeNode puts n pods of a kind on an existing node.
func (v *solver) takeNode(k, bucket, slot, n int32) {
	kd := &v.kinds[k]
	room := v.s.room(slot)
	for d, q := range kd.full {
		room[d] -= int64(n) * q
	}
	for d, q := range kd.demand {
		v.remaining[d] = max(0, v.remaining[d]-int64(n)*q)
	}
	if kd.counts != nil {
		_, named := v.s.nodes[slot].Labels[LabelHostname]
		for _, gi := range kd.counts[bucket] {
			g := &v.groups[gi]
			if g.key >= 0 {
				g.add(kd.scheme.buckets[bucket].values[g.key], n)
			} else if named || g.t.label == thisNode {
				g.byNode[slot] += n
				g.total += n
			}
		}
	}
	for i := range kd.spreads {
		c := &kd.spreads[i]
		g := &v.groups[c.group]
		v.noteFloor(g, c)
		if g.key >= 0 {
			g.holdTo(kd.scheme.buckets[bucket].values[g.key], c.maxSkew)
			continue
		}
		if g.nodeCaps == nil {
			g.nodeCaps = map[int32]int32{}
		}
		if most, ok := g.nodeCaps[slot]; !ok || c.maxSkew < most {
			g.nodeCaps[slot] = c.maxSkew
		}
	}
	v.onNodes = append(v.onNodes, onNode{k, bucket, slot, n})
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

// inBin puts up to most pods of a kind into one bin that has room.
func (v *solver) inBin(k, most int32) int32 {
	kd := &v.kinds[k]
	for _, bi := range v.turns(kd) {
		at, entry := v.nextBin(kd, bi)
		if at < 0 {
			continue
		}
		b := &v.bins[at]
		if entry != b.entry {
			v.retarget(b, entry)
		}
		n := int32(1)
		if kd.single() && v.budget.free(v, b) {
			n = fill(v.menu.at(b.entry), b.load, kd.demand, most)
		}
		v.take(k, int32(bi), int32(at), n)
		return n
	}
	return 0
}

// nextBin returns the first bin, from where the kind's search has come, that has
// room in a bucket at no further cost, and what it is then meant to become.
func (v *solver) nextBin(k *kind, bi int16) (int, int32) {
	c := &k.cursors[bi]
	bucket := &k.scheme.buckets[bi]
	if !bucket.some {
		return -1, -1
	}
	for ; c.bin < len(v.active); c.bin++ {
		at := v.active[c.bin]
		b := &v.bins[at]
		e := b.entry
		if bucket.breeds.has(int(v.menu.entries[e].breed)) {
			if !v.menu.fitsSum(e, b.load, k.demand) {
				continue
			}
		} else {
			if !b.breeds.meets(bucket.breeds) {
				continue
			}
			if e = v.other(b, k, bucket, v.menu.entries[e].price); e < 0 {
				continue
			}
		}
		if k.local && !v.localInBin(k, b) || !v.budget.keeps(v, b, bucket, k, e) {
			continue
		}
		return int(at), e
	}
	return -1, -1
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

// other returns the cheapest entry up to a price that a bin could become to take
// one more pod of a kind in a bucket, or -1.
func (v *solver) other(b *bin, k *kind, bucket *bucket, most int64) int32 {
	best := int32(-1)
	for i := range b.breeds {
		for w := b.breeds[i] & bucket.breeds[i]; w != 0; w &= w - 1 {
			br := &v.menu.breeds[i<<6+bits.TrailingZeros64(w)]
			for e := br.first; e < br.last; e++ {
				price := v.menu.entries[e].price
				if price > most || best >= 0 && price >= v.menu.entries[best].price {
					break
				}
				if v.menu.fitsSum(e, b.load, k.demand) && v.budget.swaps(v, b.entry, e) {
					best = e
					break
				}
			}
		}
	}
	return best
}

// retarget changes what a bin is meant to become.
func (v *solver) retarget(b *bin, e int32) {
	if e != b.entry {
		v.budget.take(v, b.entry, -1)
		v.budget.take(v, e, 1)
		b.entry = e
	}
}

// take puts n pods of a kind into a bin.
func (v *solver) take(k, bucket, at, n int32) {
	kd := &v.kinds[k]
	b := &v.bins[at]
	for d, q := range kd.demand {
		b.load[d] += int64(n) * q
	}
	bk := &kd.scheme.buckets[bucket]
	b.breeds.and(bk.breeds)
	if kd.counts != nil {
		for _, gi := range kd.counts[bucket] {
			g := &v.groups[gi]
			if g.key >= 0 {
				g.add(bk.values[g.key], n)
			} else {
				b.add(gi, n)
				g.total += n
			}
		}
	}
	for i := range kd.spreads {
		c := &kd.spreads[i]
		g := &v.groups[c.group]
		v.noteFloor(g, c)
		if g.key >= 0 {
			g.holdTo(bk.values[g.key], c.maxSkew)
		} else {
			b.holdTo(c.group, c.maxSkew)
		}
	}
	if m := len(b.parts); m > 0 && b.parts[m-1].kind == k && b.parts[m-1].bucket == bucket {
		b.parts[m-1].n += n
	} else {
		b.parts = append(b.parts, part{k, bucket, n})
	}
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

// noteFloor notes that a constraint asks for more domains than there are.
func (v *solver) noteFloor(g *group, c *spreadCheck) {
	if g.key >= 0 && !g.floored && c.minDomains > 0 && v.low(g, c.minDomains) == 0 && v.low(g, 0) > 0 {
		g.floored = true
	}
}

// inNew opens a bin for up to most pods of a kind.
func (v *solver) inNew(k, most int32) int32 {
	kd := &v.kinds[k]
	bi, e := v.choose(kd)
	if e < 0 {
		return 0
	}
	at := v.openBin(e)
	n := int32(1)
	if kd.single() && v.budget.free(v, &v.bins[at]) {
		n = fill(v.menu.at(e), nil, kd.demand, most)
	}
	for d, q := range v.menu.at(e) {
		v.remaining[d] = max(0, v.remaining[d]-q)
	}
	v.take(k, int32(bi), int32(at), n)
	return n
}

func (v *solver) openBin(e int32) int {
	b := bin{entry: e, breeds: make(bitset, v.menu.words), load: make([]int64, len(v.dims))}
	for i := range v.menu.breeds {
		if v.budget.mixes(v, v.menu.entries[e].breed, int32(i)) {
			b.breeds.set(i)
		}
	}
	v.budget.take(v, e, 1)
	v.bins = append(v.bins, b)
	v.active = append(v.active, int32(len(v.bins)-1))
	return len(v.bins) - 1
}

// choose returns the bucket and entry for a new bin for a kind, or -1: in the
// heaviest pools that will do, in the emptiest domain where spread has a say,
// else what gives most for the money.
func (v *solver) choose(k *kind) (int16, int32) {
	bestBucket, best := int16(-1), int32(-1)
	for _, bi := range v.turns(k) {
		c := &k.cursors[bi]
		bucket := &k.scheme.buckets[bi]
		if c.shut || !bucket.some || len(k.attract) > 0 && !v.startsHere(k) {
			continue
		}
		if k.local && !v.localInBin(k, &bin{}) {
			continue
		}
		e := v.pick(k, bucket, c)
		if e < 0 {
			c.shut = true
			continue
		}
		if len(k.spreads) > 0 {
			return bi, e
		}
		if best < 0 || v.better(k, e, best) {
			bestBucket, best = bi, e
		}
	}
	return bestBucket, best
}

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

// pick returns the entry of a bucket to open for a kind, or -1. The last answer
// stands while more demand remains than that entry has room for.
func (v *solver) pick(k *kind, bucket *bucket, c *cursor) int32 {
	if c.pick >= 0 && covers(v.remaining, v.menu.at(c.pick)) && v.budget.opens(v, c.pick, k) {
		return c.pick
	}
	best := int32(-1)
	for b := bucket.breeds.next(0); b >= 0; b = bucket.breeds.next(b + 1) {
		br := &v.menu.breeds[b]
		if best >= 0 && v.weight(br.pool) < v.weightOf(best) || v.real && !v.opened(int32(b)) {
			continue
		}
		for e := br.first; e < br.last; e++ {
			if v.menu.fits(e, k.demand) && v.budget.opens(v, e, k) && (best < 0 || v.better(k, e, best)) {
				best = e
			}
		}
	}
	c.pick = best
	return best
}

func (v *solver) weight(pool int32) int { return v.space.pools[pool].pool.Weight }

func (v *solver) weightOf(e int32) int {
	return v.weight(v.menu.breeds[v.menu.entries[e].breed].pool)
}

// better reports whether entry a is to be preferred to b for a new bin: by the
// weight of its pool, then by how much of the remaining demand it serves for its
// price.
func (v *solver) better(k *kind, a, b int32) bool {
	if wa, wb := v.weightOf(a), v.weightOf(b); wa != wb {
		return wa > wb
	}
	pa, pb := max(v.menu.entries[a].price, 1), max(v.menu.entries[b].price, 1)
	ha, la := bits.Mul64(uint64(v.serves(k, a)), uint64(pb))
	hb, lb := bits.Mul64(uint64(v.serves(k, b)), uint64(pa))
	if ha != hb {
		return ha > hb
	}
	return la > lb
}

// serves is the worth of the demand that an entry has room for.
func (v *solver) serves(k *kind, e int32) int64 {
	sum := int64(0)
	for d, q := range v.menu.at(e) {
		q = min(q, max(v.remaining[d], k.demand[d]))
		if q > 0 && v.rates[d] > 0 {
			sum += scaled(q, v.rates[d])
		}
	}
	return sum
}

// grow puts one pod of a kind into a bin that has to become a larger or another
// entry for it, whatever that costs.
func (v *solver) grow(k int32) int32 {
	kd := &v.kinds[k]
	for _, bi := range v.turns(kd) {
		bucket := &kd.scheme.buckets[bi]
		if !bucket.some {
			continue
		}
		for at := range v.bins {
			b := &v.bins[at]
			if !b.breeds.meets(bucket.breeds) || kd.local && !v.localInBin(kd, b) {
				continue
			}
			if e := v.other(b, kd, bucket, unlimited); e >= 0 && v.budget.keeps(v, b, bucket, kd, e) {
				v.retarget(b, e)
				v.take(k, int32(bi), int32(at), 1)
				return 1
			}
		}
	}
	return 0
}

// rightSize makes every bin the cheapest entry that fits its load.
func (v *solver) rightSize() {
	for i := range v.bins {
		b := &v.bins[i]
		if e := v.cheapestFor(b); e >= 0 {
			v.retarget(b, e)
		}
	}
}

// cheapestFor returns the cheapest entry, in pools as heavy as the bin's, that
// fits its load.
func (v *solver) cheapestFor(b *bin) int32 {
	best := b.entry
	weight := v.weightOf(b.entry)
	for i := b.breeds.next(0); i >= 0; i = b.breeds.next(i + 1) {
		br := &v.menu.breeds[i]
		if v.weight(br.pool) != weight {
			continue
		}
		for e := br.first; e < br.last && v.menu.entries[e].price < v.menu.entries[best].price; e++ {
			if v.menu.fits(e, b.load) && v.budget.swaps(v, b.entry, e) {
				best = e
				break
			}
		}
	}
	return best
}

// cheapest returns the cheapest entry that a kind could have a new node of, or -1.
func (v *solver) cheapest(k int32) int32 {
	kd := &v.kinds[k]
	best := int32(-1)
	for _, bi := range v.turns(kd) {
		bucket := &kd.scheme.buckets[bi]
		for b := bucket.breeds.next(0); b >= 0; b = bucket.breeds.next(b + 1) {
			br := &v.menu.breeds[b]
			for e := br.first; e < br.last; e++ {
				if best >= 0 && v.menu.entries[e].price >= v.menu.entries[best].price {
					break
				}
				if v.menu.fits(e, kd.demand) && v.budget.opens(v, e, kd) {
					best = e
					break
				}
			}
		}
	}
	return best
}

// peek reports whether a kind finds room on an existing node or in a bin.
func (v *solver) peek(k int32) bool {
	kd := &v.kinds[k]
	for _, bi := range v.turns(kd) {
		if v.nextNode(kd, bi) >= 0 {
			return true
		}
		if at, _ := v.nextBin(kd, bi); at >= 0 {
			return true
		}
	}
	return false
}
