package pack

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
		v.takeNode(k, bi, slot, n)
		return n
	}
	return 0
}

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
func (v *solver) nextNode(k *kind, bi int32) int32 {
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
		v.take(k, bi, int32(at), n)
		return n
	}
	return 0
}

// nextBin returns the first bin, from where the kind's search has come, that has
// room in a bucket at no further cost, and what it is then meant to become.
func (v *solver) nextBin(k *kind, bi int32) (int, int32) {
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
	v.spend(e)
	v.take(k, bi, int32(at), n)
	return n
}

func (v *solver) openBin(e int32) int {
	b := bin{entry: e, breeds: make(bitset, v.menu.words), load: make([]int64, v.menu.dims)}
	for i := range v.menu.breeds {
		if v.budget.mixes(v, v.menu.entries[e].breed, int32(i)) {
			b.breeds.set(i)
		}
	}
	v.budget.take(v, e, 1)
	if v.perBreed == nil {
		v.perBreed = make([]int32, len(v.menu.breeds))
	}
	v.perBreed[v.menu.entries[e].breed]++
	v.bins = append(v.bins, b)
	v.active = append(v.active, int32(len(v.bins)-1))
	return len(v.bins) - 1
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
				v.take(k, bi, int32(at), 1)
				return 1
			}
		}
	}
	return 0
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
