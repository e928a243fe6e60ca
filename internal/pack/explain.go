package pack

import (
	"cmp"
	"maps"
	"slices"
)

// explain returns why no pool has a place for the rest of a batch, pool by pool
// in the order in which they are tried. It asks the questions of a search again,
// one at a time, of a space in which everything is for sale, and stops at the
// first that no column passes.
func (v *solver) explain(b *batch) []Reason {
	if len(v.space.pools) == 0 {
		return []Reason{{Cause: NoPools}}
	}
	if v.everything == nil {
		v.everything = v.s.layOut(allForSale(v.space), map[*InstanceType]*typeTable{})
	}
	out := make([]Reason, 0, len(v.space.pools))
	for p := range v.everything.pools {
		r := v.explainPool(v.laxest(b, int32(p)), b, int32(p))
		r.Pool = v.everything.pools[p].pool.Name
		out = append(out, r)
	}
	return out
}

// laxest returns the form of a batch that asks least of those that may be in a pool.
func (v *solver) laxest(b *batch, pool int32) *kind {
	for k := b.last - 1; k > b.first; k-- {
		for i := range v.menu.breeds {
			if v.menu.breeds[i].pool == pool && v.kinds[k].scheme.breeds.has(i) {
				return &v.kinds[k]
			}
		}
	}
	return &v.kinds[b.last-1]
}

// allForSale returns the pools of a space with every offering available.
func allForSale(sp *space) []Pool {
	var pools []Pool
	for i := range sp.pools {
		pool := sp.pools[i].pool
		pool.Types = slices.Clone(pool.Types)
		for j := range pool.Types {
			t := &pool.Types[j]
			t.Offerings = slices.Clone(t.Offerings)
			for o := range t.Offerings {
				t.Offerings[o].Available = true
			}
		}
		pools = append(pools, pool)
	}
	return pools
}

func (v *solver) explainPool(k *kind, b *batch, pool int32) Reason {
	sp := v.everything
	ps := &sp.pools[pool]
	f := v.s.filters.at(k.filter)
	if i := f.untolerated(ps.pool.Taints); i >= 0 {
		return Reason{Cause: Untolerated, Taint: ps.pool.Taints[i]}
	}
	// Labels: the spec's own, then with its volumes, then with its ports.
	own := newFilter(&PodSpec{NodeSelector: b.spec.src.NodeSelector, Affinity: b.spec.src.Affinity, Tolerations: b.spec.src.Tolerations}, hardTaints, false)
	pass := sp.inPool(pool, own)
	if len(pass) == 0 {
		return v.explainLabels(own, pool)
	}
	withVolumes := newFilter(b.spec.src, hardTaints, true)
	withVolumes.ports = nil
	if len(sp.inPool(pool, withVolumes)) == 0 {
		return Reason{Cause: VolumeElsewhere}
	}
	pass = sp.inPool(pool, newFilter(b.spec.src, hardTaints, true))
	if len(pass) == 0 {
		return Reason{Cause: PortTaken}
	}
	// Room.
	fit := pass[:0:0]
	nearest, short := int32(-1), len(v.dims)+1
	for _, c := range pass {
		lacks := 0
		for d, axis := range v.dims {
			if q := k.demand[d]; q > 0 && q > sp.at(int(c))[axis] {
				lacks++
			}
		}
		if lacks == 0 {
			fit = append(fit, c)
		} else if lacks < short {
			nearest, short = c, lacks
		}
	}
	if len(fit) == 0 {
		return v.explainRoom(k, pass, nearest)
	}
	// Sale: the same columns in the space as it is.
	some := false
	for i := range v.menu.breeds {
		br := &v.menu.breeds[i]
		some = some || br.pool == pool && k.scheme.breeds.has(i) && v.anyFits(br, k)
	}
	_, _, r := sp.locate(int(fit[0]))
	near := ps.table.types[r.typ].Name
	if !some {
		return Reason{Cause: NoOffering, Nearest: near}
	}
	if r, ok := v.explainBudget(k, pool); ok {
		return r
	}
	r2 := v.explainTopology(k, pool)
	r2.Nearest = near
	return r2
}

// inPool lists the columns of one pool that a filter lets through.
func (sp *space) inPool(pool int32, f *filter) []int32 {
	all := sp.columns(f)
	delete(sp.answers, f)
	var out []int32
	for c := all.next(sp.pools[pool].first); c >= 0 && sp.owners[c] == pool; c = all.next(c + 1) {
		out = append(out, int32(c))
	}
	return out
}

func (v *solver) anyFits(br *breed, k *kind) bool {
	for e := br.first; e < br.last; e++ {
		if v.menu.fits(e, k.demand) {
			return true
		}
	}
	return false
}

// explainLabels says which clause stands in the way, or that all do together.
func (v *solver) explainLabels(f *filter, pool int32) Reason {
	sp := v.everything
	ps := &sp.pools[pool]
	best := Reason{Cause: NoType}
	for _, c := range f.choices {
		// Of several alternatives the first is spoken of: each fails.
		for _, alt := range c {
			for _, cl := range alt {
				one := &filter{choices: []choice{{{cl}}}, taints: noTaints}
				one.seal()
				if len(sp.inPool(pool, one)) > 0 {
					continue
				}
				r := Reason{Cause: Incompatible, Key: cl.key}
				if reqs := cl.set.Requirements(cl.key); len(reqs) > 0 {
					r.Requirement = reqs[0]
				}
				if _, stated := ps.sets[cl.key]; !stated && ps.table.column(cl.key) == nil && !cl.set.HasAbsent() && !v.s.wellKnown[cl.key] && cl.key != LabelPool && !isNameKey(cl.key) {
					if _, labelled := ps.pool.Labels[cl.key]; !labelled {
						r.Cause, r.Hint = UndefinedLabel, v.closest(cl.key, ps)
					}
				}
				return r
			}
			if best.Key != "" {
				continue
			}
			// Each alone is met: find one whose removal would help.
			for i, cl := range alt {
				rest := slices.Delete(slices.Clone(alt), i, i+1)
				g := &filter{choices: []choice{{rest}}, taints: noTaints}
				g.seal()
				if len(sp.inPool(pool, g)) > 0 {
					best.Key = cl.key
					if reqs := cl.set.Requirements(cl.key); len(reqs) > 0 {
						best.Requirement = reqs[0]
					}
					break
				}
			}
		}
	}
	return best
}

// closest returns the label key of the pool that a key may have been meant for.
func (v *solver) closest(key string, ps *poolSpace) string {
	known := maps.Clone(v.s.wellKnown)
	for k := range ps.pool.Labels {
		known[k] = true
	}
	for k := range ps.sets {
		known[k] = true
	}
	for k := range ps.table.columns {
		if ps.table.columns[k] != nil {
			known[k] = true
		}
	}
	best, least := "", 3
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := distance(key, k, least); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of single-character edits between two strings, or most
// if there are as many or more.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], most)
}

// explainRoom says which resource is short on the column that lacks least.
func (v *solver) explainRoom(k *kind, pass []int32, nearest int32) Reason {
	sp := v.everything
	ps, _, row := sp.locate(int(nearest))
	r := Reason{Cause: TooLarge, Nearest: ps.table.types[row.typ].Name}
	for d, axis := range v.dims {
		q := k.demand[d]
		if q == 0 || q <= sp.at(int(nearest))[axis] {
			continue
		}
		r.Want, r.Have = q, 0
		for _, c := range pass {
			r.Have = max(r.Have, sp.at(int(c))[axis])
		}
		r.Resource = v.s.axis.names[axis]
		if v.s.axis.isDriver(int(axis)) {
			r.Cause, r.Resource = AttachLimit, r.Resource[len(driverPrefix):]
		}
		// A resource of which no type has enough says more than one that is short on
		// the nearest type alone.
		if r.Have < q {
			return r
		}
	}
	return r
}

// explainBudget says whether limits or minValues refuse a node for one pod.
func (v *solver) explainBudget(k *kind, pool int32) (Reason, bool) {
	m := v.menu
	n := len(m.limited)
	all := len(v.space.pools)
	best, found := Reason{}, false
	for i := range m.breeds {
		br := &m.breeds[i]
		if br.pool != pool || !k.scheme.breeds.has(i) {
			continue
		}
		for e := br.first; e < br.last; e++ {
			if !m.fits(e, k.demand) {
				continue
			}
			if v.budget.opens(v, e, k) {
				return Reason{}, false
			}
			if v.budget.room(v, e, nowhere) {
				for j := range v.space.pools[pool].minValues {
					mv := &v.space.pools[pool].minValues[j]
					if have := v.budget.distinct(v, int32(i), nowhere, mv, k.scheme.bucketWith(int32(i)), nil, nil, k.demand); have < mv.n {
						best, found = Reason{Cause: MinValuesUnmet, Key: mv.key, Have: int64(have), Want: int64(mv.n), Nearest: v.typeOf(e)}, true
					}
				}
				continue
			}
			for which, p := range [...]int{int(pool), all} {
				cause := LimitReached
				if which == 1 {
					cause = ClusterLimitReached
				}
				if _, capped := v.most[pool]; capped && which == 0 {
					mv := &v.space.pools[pool].minValues[0]
					have := v.budget.distinct(v, int32(i), nowhere, mv, k.scheme.bucketWith(int32(i)), nil, nil, k.demand)
					return Reason{Cause: MinValuesUnmet, Key: mv.key, Have: int64(have), Want: int64(mv.n), Nearest: v.typeOf(e)}, true
				}
				if v.budget.leftNodes[p] <= 0 {
					return Reason{Cause: cause, Resource: NodeCount, Have: max(v.budget.leftNodes[p], 0), Want: 1, Nearest: v.typeOf(e)}, true
				}
				for j := range n {
					want, have := m.capacity[int(e)*n+j], v.budget.left[p*n+j]
					if want > have && (!found || want < best.Want) {
						best, found = Reason{Cause: cause, Resource: v.s.axis.names[m.limited[j]], Have: max(have, 0), Want: want, Nearest: v.typeOf(e)}, true
					}
				}
			}
			if !found && br.reservation >= 0 {
				best, found = Reason{Cause: NoOffering, Nearest: v.typeOf(e)}, true
			}
		}
	}
	return best, found
}

// typeOf returns the name of an entry's type.
func (v *solver) typeOf(e int32) string {
	ps, _, r := v.space.locate(int(v.menu.entries[e].column))
	return ps.table.types[r.typ].Name
}

// explainTopology says which check keeps the kind out of every bucket that the
// pool has columns in. Checks that hold in some bucket but fail in others are
// named only if none fails everywhere.
func (v *solver) explainTopology(k *kind, pool int32) Reason {
	var mine []*bucket
	for i := range k.scheme.buckets {
		b := &k.scheme.buckets[i]
		for c := b.breeds.next(0); c >= 0; c = b.breeds.next(c + 1) {
			if v.menu.breeds[c].pool == pool {
				mine = append(mine, b)
				break
			}
		}
	}
	type check struct {
		r     Reason
		fails func(b *bucket) bool
	}
	var checks []check
	for i := range k.avoid {
		g := &v.groups[k.avoid[i]]
		checks = append(checks, check{Reason{Cause: AntiAffinityBlocked, Key: g.t.label}, func(b *bucket) bool {
			return g.key >= 0 && g.at(b.values[g.key]) > 0
		}})
	}
	starts := k.starts && v.none(k.attract)
	for _, gi := range k.attract {
		g := &v.groups[gi]
		unmet := Reason{Cause: AffinityUnmet, Key: g.t.label}
		if g.t.label == thisNode {
			unmet = Reason{Cause: NotBeside}
		}
		checks = append(checks, check{unmet, func(b *bucket) bool {
			if g.key < 0 {
				return !starts
			}
			return b.values[g.key] < 0 || !starts && g.at(b.values[g.key]) == 0
		}})
	}
	for i := range k.spreads {
		c := &k.spreads[i]
		g := &v.groups[c.group]
		checks = append(checks, check{Reason{Cause: SpreadSkew, Key: g.t.label, Want: int64(c.maxSkew)}, func(b *bucket) bool {
			return g.key >= 0 && (b.values[g.key] < 0 || g.at(b.values[g.key])+c.self-v.low(g, c.minDomains) > c.maxSkew)
		}})
	}
	// Groups are numbered as they are met, so that the order has to be made here.
	slices.SortStableFunc(checks, func(a, b check) int {
		return cmp.Or(cmp.Compare(a.r.Cause, b.r.Cause), cmp.Compare(a.r.Key, b.r.Key), cmp.Compare(a.r.Want, b.r.Want))
	})
	some := -1
	for i, c := range checks {
		all := true
		for _, b := range mine {
			if c.fails(b) {
				if some < 0 {
					some = i
				}
			} else {
				all = false
			}
		}
		if all {
			return c.r
		}
	}
	if some >= 0 {
		return checks[some].r
	}
	return Reason{Cause: NoType}
}
