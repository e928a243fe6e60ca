package pack

import "slices"

// Placing pods one after another, the largest first, can leave one without a
// place that another order would have found: what it should have joined is full,
// every domain has somebody who keeps it out, a limit is used up by large nodes.
// If pods are left that could be placed alone, they are given precedence and all
// is placed again in a few other ways; the way that places most is kept.

// way is how placing departs from the usual.
type way struct {
	// first ranks batches before the rest: 0 for the first ones.
	first []int8
	// frugal opens nodes that serve most for what is limited, small ones the smallest.
	frugal, small bool
	// fresh prefers new nodes to those that have pods already.
	fresh bool
	// loose minds no rules beyond the scheduler's from the start.
	loose bool
	// relent gives up all preferences that may be.
	relent bool
	// shuffle, if not zero, puts batches in a random order within their rank.
	shuffle noise
}

// rank orders batches of one priority before their size does.
func (v *solver) rank(batch int32) int {
	r := 1
	if int(batch) < len(v.way.first) {
		r = int(v.way.first[batch])
	}
	r *= 1 << 16
	if v.way.shuffle != 0 {
		n := v.way.shuffle ^ noise(batch+1)*0x9e3779b97f4a7c15
		n.next()
		r += int(n.next() >> 50)
	}
	return r
}

const (
	// mostRetried is the number of pods up to which all ways are tried. With more,
	// only those that give precedence are.
	mostRetried = 200
	// few is the number of pods up to which many random orders are tried.
	few = 16
)

// shuffles is how many random orders are tried.
func shuffles(pods int) int {
	if pods <= few {
		return 40
	}
	return 10
}

// retry looks for a solution that places more pods and returns the best one.
func (v *solver) retry(pods []int32) *solver {
	if !v.couldPlace() {
		return v
	}
	v.rightSize()
	var ways []way
	left, related := v.leftFirst(false), v.leftFirst(true)
	ways = append(ways, way{first: related}, way{first: left}, way{first: related, frugal: true})
	if len(pods) <= mostRetried {
		ways = append(ways, way{frugal: true}, way{small: true}, way{first: related, fresh: true}, way{loose: true}, way{first: left, loose: true})
		for i := range shuffles(len(pods)) {
			ways = append(ways, way{first: left, shuffle: noise(2*i + 1), frugal: i%3 == 2, small: i%6 == 3, fresh: i%4 >= 2, loose: i%2 == 1})
		}
	}
	return v.tryWays(pods, ways, func(u, best *solver) bool { return u.places(best) }, func(best *solver) bool { return !best.couldPlace() })
}

// tryWays places the pods in other ways and returns the best solution.
func (v *solver) tryWays(pods []int32, ways []way, better func(u, best *solver) bool, enough func(best *solver) bool) *solver {
	best := v
	for _, w := range ways {
		if v.stopped() {
			break
		}
		best.undo()
		u := newSolver(v.s, v.o, v.space, v.shut)
		u.way, u.most = w, v.most
		u.begin(pods)
		u.place()
		u.rightSize()
		if better(u, best) {
			best = u
		} else {
			u.undo()
			best.redo()
		}
		if enough(best) {
			break
		}
	}
	best.way = way{}
	return best
}

// reuse looks for a solution that puts more on the nodes that there are, if any
// pod is on one and some need new ones: in which order pods are placed decides
// what gets the room that costs nothing.
func (v *solver) reuse(pods []int32) *solver {
	if len(v.onNodes) == 0 || len(v.bins) == 0 || len(pods) > mostRetried {
		return v
	}
	// Those that can be on few nodes go first, then a few random orders.
	choices := make([]int, len(v.batches))
	most := 0
	for i := range v.batches {
		sc := v.kinds[v.batches[i].first].scheme
		for c, bucket := range sc.ofNode {
			if bucket >= 0 {
				choices[i] += v.s.classes.list[c].live
			}
		}
		most = max(most, choices[i])
	}
	rank := make([]int8, len(choices))
	for i, n := range choices {
		rank[i] = int8(100 * n / max(most, 1))
	}
	ways := []way{{first: rank}}
	for i := range shuffles(len(pods)) / 3 {
		ways = append(ways, way{shuffle: noise(2*i + 1)})
	}
	return v.tryWays(pods, ways, func(u, best *solver) bool {
		return !best.places(u) && u.price() < best.price()
	}, func(best *solver) bool { return len(best.bins) == 0 })
}

// relent gives up all preferences that were weighed against money if that is cheaper:
// each may have seemed to cost nothing, as the last pod's does, and cost a node once
// the others are packed. A plan that rests on a last resort is none to exchange: what
// the scheduler makes of it depends on the order in which pods come.
func (v *solver) relent(pods []int32) *solver {
	if v.leaned || v.kept() == 0 || v.price() <= v.boundAt(v.onNew(), v.boundRates) {
		return v
	}
	best := v.tryWays(pods, []way{{relent: true}}, func(u, best *solver) bool {
		u.repack()
		return !u.leaned && !best.places(u) && u.price()-u.kept() < best.price()-best.kept()
	}, func(*solver) bool { return true })
	return best
}

// kept is what the preferences are worth an hour that placed pods keep and might have
// given up.
func (v *solver) kept() int64 {
	sum := int64(0)
	count := func(kind, n int32) {
		k := &v.kinds[kind]
		if b := &v.batches[k.batch]; v.weighs(b) {
			sum += int64(n) * (v.kinds[b.last-1].lost - k.lost) * v.o.WeightMicroUSD
		}
	}
	for i := range v.bins {
		for _, p := range v.bins[i].parts {
			count(p.kind, p.n)
		}
	}
	for _, on := range v.onNodes {
		count(on.kind, on.n)
	}
	return sum
}

// couldPlace reports whether a pod is left that an empty node or some existing one
// would take if it were alone.
func (v *solver) couldPlace() bool {
	for i := range v.batches {
		b := &v.batches[i]
		if b.placed == len(b.pods) {
			continue
		}
		// Forms may be for different pools.
		for k := b.first; k < b.last; k++ {
			kd := &v.kinds[k]
			if len(v.templates[kd.charge].entries) > 0 {
				return true
			}
			for c, bucket := range kd.scheme.ofNode {
				if bucket >= 0 && v.s.classes.list[c].live > 0 {
					return true
				}
			}
		}
	}
	return false
}

// places reports whether a solution places more than another: more pods of the
// highest priority in which they differ.
func (v *solver) places(than *solver) bool {
	var priorities []int32
	for i := range v.batches {
		priorities = append(priorities, v.batches[i].priority)
	}
	slices.Sort(priorities)
	priorities = slices.Compact(priorities)
	slices.Reverse(priorities)
	for _, p := range priorities {
		if mine, others := v.placedAt(p), than.placedAt(p); mine != others {
			return mine > others
		}
	}
	return false
}

func (v *solver) placedAt(priority int32) int {
	n := 0
	for i := range v.batches {
		if v.batches[i].priority == priority {
			n += v.batches[i].placed
		}
	}
	return n
}

// leftFirst ranks the batches of which pods are left before the others, and before
// them, if asked, those that they want to be with.
func (v *solver) leftFirst(related bool) []int8 {
	rank := make([]int8, len(v.batches))
	for i := range rank {
		rank[i] = 2
	}
	for i := range v.batches {
		b := &v.batches[i]
		if b.placed == len(b.pods) {
			continue
		}
		rank[i] = 1
		if !related {
			continue
		}
		for _, g := range v.kinds[b.first].attract {
			for j := range v.batches {
				if slices.Contains(v.kinds[v.batches[j].first].adds, g) && rank[j] == 2 {
					rank[j] = 0
				}
			}
		}
	}
	return rank
}
