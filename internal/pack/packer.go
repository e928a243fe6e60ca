package pack

import (
	"cmp"
	"slices"
)

// lot is a number of pods of a kind, in a bucket, to be packed.
type lot struct {
	kind, bucket int32
	left         int32
	// taken is how many of them are in the trial.
	taken  int32
	size   int32
	breeds bitset
}

// size is the pods to be packed that ask for the same resources.
type size struct {
	demand []int64
	// amount is demand as numbers to be weighed.
	amount []float64
	worth  int64
	lots   []int32
	left   int32
	// next is the first of lots whose pods may still join the trial.
	next int
}

// packer packs lots into bins. Its memory is kept from one use to the next.
type packer struct {
	v     *solver
	lots  []lot
	sizes []size
	// sizeOf finds the size of a kind: kinds of equal demand share one number in
	// shape, and slot is that number's place among the sizes, valid if stamp is now.
	shape       []int32
	slot        []int32
	stamp       []uint32
	now         uint32
	trial, best pattern
	load        []int64
	// demand is what all lots left ask for; target is the load that the trial is to
	// have, pull how much more of each resource it wants.
	demand       []int64
	target, pull []float64
	bin          bin
	out          []bin
	spare        []bin
	noise        noise
	// limit ends packing once it has cost as much, if it is more than zero; spent is
	// what it cost so far.
	limit, spent int64
	// thorough packing tries all entries of a shortlist for each bin.
	thorough bool
	// live are the sizes of which pods may still join the trial, in order, free is
	// the room that it has left.
	live []int32
	free []int64
	// listed are the sizes from which the live ones are taken.
	listed []int32
	// scratch of merge
	order, place []int32
	sorted       []size
}

// pattern is what one bin is filled with: numbers of pods by lot.
type pattern struct {
	entry int32
	worth int64
	parts []part // kind is the lot
}

// newPacker numbers the demands of the kinds.
func (v *solver) newPacker() *packer {
	n := v.menu.dims
	p := &packer{v: v, load: make([]int64, n), free: make([]int64, n), demand: make([]int64, n), target: make([]float64, n), pull: make([]float64, n)}
	p.bin.load = p.load
	p.shape = make([]int32, len(v.kinds))
	index := map[string]int32{}
	var buf []byte
	for k := range v.kinds {
		buf = buf[:0]
		for _, q := range v.kinds[k].demand {
			for i := range 8 {
				buf = append(buf, byte(q>>(8*i)))
			}
		}
		id, ok := index[string(buf)]
		if !ok {
			id = int32(len(index))
			index[string(buf)] = id
		}
		p.shape[k] = id
	}
	p.slot, p.stamp = make([]int32, len(index)), make([]uint32, len(index))
	return p
}

// begin empties the packer.
func (p *packer) begin() {
	p.lots, p.sizes, p.out = p.lots[:0], p.sizes[:0], p.out[:0]
	p.now++
	clear(p.demand)
	p.limit, p.spent = 0, 0
}

// put adds pods to be packed.
func (p *packer) put(kind, bucket, n int32) {
	k := &p.v.kinds[kind]
	id := p.shape[kind]
	if p.stamp[id] != p.now {
		p.stamp[id], p.slot[id] = p.now, int32(len(p.sizes))
		if len(p.sizes) < cap(p.sizes) {
			p.sizes = p.sizes[:len(p.sizes)+1]
		} else {
			p.sizes = append(p.sizes, size{})
		}
		s := &p.sizes[len(p.sizes)-1]
		s.demand, s.worth, s.left, s.lots, s.amount = k.demand, k.worth, 0, s.lots[:0], s.amount[:0]
		for _, q := range k.demand {
			s.amount = append(s.amount, float64(q))
		}
	}
	at := p.slot[id]
	s := &p.sizes[at]
	s.left += n
	for d, q := range k.demand {
		p.demand[d] += int64(n) * q
	}
	s.lots = append(s.lots, int32(len(p.lots)))
	p.lots = append(p.lots, lot{kind: kind, bucket: bucket, left: n, size: at, breeds: k.scheme.buckets[bucket].breeds})
}

// merge joins equal lots after many were put, and puts sizes and lots into an
// order that depends on content alone: the most valuable first.
func (p *packer) merge() {
	slices.SortFunc(p.lots, func(a, b lot) int {
		return cmp.Or(cmp.Compare(p.sizes[b.size].worth, p.sizes[a.size].worth), cmp.Compare(p.v.kinds[a.kind].batch, p.v.kinds[b.kind].batch),
			cmp.Compare(a.kind, b.kind), cmp.Compare(a.bucket, b.bucket))
	})
	keep := p.lots[:0]
	for _, l := range p.lots {
		if n := len(keep); n > 0 && keep[n-1].kind == l.kind && keep[n-1].bucket == l.bucket {
			keep[n-1].left += l.left
			continue
		}
		keep = append(keep, l)
	}
	p.lots = keep
	for i := range p.sizes {
		p.sizes[i].lots = p.sizes[i].lots[:0]
	}
	// Sizes of equal worth are told apart by their first lot.
	for i := range p.lots {
		s := &p.sizes[p.lots[i].size]
		s.lots = append(s.lots, int32(i))
	}
	order := p.order[:0]
	for i := range p.sizes {
		order = append(order, int32(i))
	}
	p.order = order
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.sizes[b].worth, p.sizes[a].worth), cmp.Compare(p.sizes[a].lots[0], p.sizes[b].lots[0]))
	})
	p.sorted = append(p.sorted[:0], p.sizes...)
	place := append(p.place[:0], order...)
	p.place = place
	for i, o := range order {
		p.sizes[i] = p.sorted[o]
		place[o] = int32(i)
	}
	for i := range p.lots {
		p.lots[i].size = place[p.lots[i].size]
	}
}
