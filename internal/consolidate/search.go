package consolidate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/pack"
)

// Node is one that may be taken away.
type Node struct {
	Name string
	// Cost is what it costs to evict its pods, in thousandths of an ordinary pod.
	Cost int64
}

// Pool bounds what may be done to a pool's nodes.
type Pool struct {
	// Budget is how many more nodes may be on their way out.
	Budget int
	// Chosen says that what a command must save at least was chosen: MinSavings
	// micro-dollars an hour and MinPermille thousandths of what the nodes that it takes
	// away cost. Otherwise it is what its moves are worth.
	Chosen                  bool
	MinSavings, MinPermille int64
	// Balanced wants a command to save half as much of the pool's cost as it disturbs
	// of the pool's pods, at least.
	Balanced bool
}

// Problem is what to search. The order of its slices carries no meaning.
type Problem struct {
	// Nodes are the candidates. Others stay.
	Nodes []Node
	// Closed are nodes that moved pods may not go to.
	Closed []string
	// Pools has the candidates' pools, by name. A pool that isn't there has no budget.
	Pools map[string]Pool
	// SpotToSpot lets spot nodes be replaced by spot nodes.
	SpotToSpot bool
	// Again is how many searches in a row before this one have found something. Each
	// makes a moved pod have to save twice as much: what is found right after pods have
	// moved is mostly that they didn't land where they were planned, and moving them
	// once more seldom mends that.
	Again int
}

// Command takes nodes away, after others have come in their place.
type Command struct {
	// Remove are the nodes that go, sorted.
	Remove []string
	// New are the nodes that must be there first.
	New []pack.NewNode
	// Saves is what it saves, in micro-dollars an hour.
	Saves int64
	// Moves is how many pods move.
	Moves int
}

// Result is what a search came to.
type Result struct {
	// Commands are sorted by the first node that they remove.
	Commands []Command
	// Before and After are what the candidates, and what is left or comes of them,
	// cost in micro-dollars an hour.
	Before, After int64
	// Keeps says for each candidate that stays why it does.
	Keeps map[string]Keep
}

// Keep says why a candidate stays.
type Keep uint8

// Reasons to stay.
const (
	// NoCheaper: no cheaper place was found for the node's pods.
	NoCheaper Keep = iota
	// NoPlace: some of its pods would find no place.
	NoPlace
	// NoBudget: it could go, but the pool's budget is used up.
	NoBudget
	// TooLittle: what it would save isn't worth it.
	TooLittle
	// SpotOnly: only another spot node would be cheaper, of too few types.
	SpotOnly
)

// Values that bound churn.
const (
	// worth is what moving a pod must save, in thousandths of what an average pod's part
	// of its node costs. Karpenter's Balanced policy asks for 500, its
	// WhenEmptyOrUnderutilized for nothing, which is what makes it loop
	// (aws/karpenter-provider-aws#8536). docs/decisions/0004 has what other values came to.
	worth = 175
	// balanced is the same for pools that ask for balance: Karpenter's 1/k with k = 2.
	balanced = 500
	// leastPermille is the share of what the removed nodes cost that a replacement
	// must save at least: prices of spot capacity wobble by more than this.
	leastPermille = 10
)

// mostAgain bounds Problem.Again: a pod that moves then saves more than an average pod
// costs, as the last pods of a node do.
const mostAgain = 3

// trimmed is the largest set of which members are left out by way of trial: the cost
// of that grows with the square of its size.
const trimmed = 32

// hunt is one search.
type hunt struct {
	t      *Trial
	p      Problem
	all    []candidate // sorted by name
	nodes  []candidate // those left
	budget map[string]int
	perPod float64 // what an average pod's part of its node costs, in micro-dollars an hour
	keeps  map[string]Keep
}

// candidate is a Node with what the state knows of it.
type candidate struct {
	Node
	pool  string
	price int64
	spot  bool
	// waste is what its unused part costs, in micro-dollars an hour.
	waste int64
}

// Search looks for commands, which become part of the trial.
func (t *Trial) Search(p Problem) Result {
	r := &hunt{t: t, p: p, budget: map[string]int{}, keeps: map[string]Keep{}}
	for name, pool := range p.Pools {
		r.budget[name] = pool.Budget
	}
	var before, used, pods int64
	for _, n := range p.Nodes {
		have, ok := t.state.Node(n.Name)
		if !ok || have.MicroUSD <= 0 || t.pinned[n.Name] {
			continue // its price isn't known, so nothing is known to be cheaper
		}
		c := candidate{Node: n, pool: have.Pool, price: have.MicroUSD, spot: have.Labels[pack.LabelCapacityType] == pack.Spot}
		r.nodes = append(r.nodes, c)
		before += c.price
		used += c.price - t.waste(n.Name)
		pods += c.Cost
	}
	slices.SortFunc(r.nodes, func(a, b candidate) int { return strings.Compare(a.Name, b.Name) })
	r.all = slices.Clone(r.nodes)
	if pods > 0 {
		r.perPod = float64(used) * 1000 / float64(pods)
	}
	from := t.mark()
	r.deletions()
	r.groups()
	out := Result{Before: before, After: before, Keeps: r.keeps}
	for _, c := range t.commands(from) {
		// A set may pay although a part of it, which others don't need, doesn't.
		if !r.pays(r.among(c.Remove), c.Saves) {
			for _, name := range c.Remove {
				r.keeps[name] = TooLittle
			}
			continue
		}
		out.After -= c.Saves
		out.Commands = append(out.Commands, c)
	}
	return out
}

// density orders candidates by what they save for what they disturb.
func density(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(float64(b.price)/float64(1000+b.Cost), float64(a.price)/float64(1000+a.Cost)),
		strings.Compare(a.Name, b.Name))
}

// deletions takes away nodes whose pods fit on others.
func (r *hunt) deletions() {
	order := slices.Clone(r.nodes)
	slices.SortFunc(order, density)
	for _, c := range order {
		switch plan := r.t.without(-1, r.p.Closed, c.Name); {
		case len(plan.Unschedulable) > 0:
			r.keeps[c.Name] = NoPlace
		case len(plan.NewNodes) > 0:
			r.keeps[c.Name] = NoCheaper
		case r.budget[c.pool] <= 0:
			r.keeps[c.Name] = NoBudget
		case !r.pays([]candidate{c}, c.price):
			r.keeps[c.Name] = TooLittle
		default:
			r.take([]candidate{c}, plan)
		}
	}
}

// take makes a change part of the trial.
func (r *hunt) take(set []candidate, plan *pack.Plan) {
	for _, c := range set {
		r.budget[c.pool]--
		delete(r.keeps, c.Name)
	}
	r.t.commit(names(set), plan)
	r.nodes = slices.DeleteFunc(r.nodes, func(c candidate) bool {
		return slices.ContainsFunc(set, func(x candidate) bool { return x.Name == c.Name })
	})
}

func (r *hunt) among(names []string) []candidate {
	var out []candidate
	for _, c := range r.all {
		if slices.Contains(names, c.Name) {
			out = append(out, c)
		}
	}
	return out
}

func names(set []candidate) []string {
	out := make([]string, len(set))
	for i, c := range set {
		out[i] = c.Name
	}
	return out
}

// pays reports whether a saving is worth taking the nodes away.
func (r *hunt) pays(set []candidate, saves int64) bool {
	if saves <= 0 || saves < r.needs(set) {
		return false
	}
	var cost int64
	for _, c := range set {
		cost += c.Cost
	}
	for _, c := range set {
		if r.p.Pools[c.pool].Balanced && saves < r.worth(cost, balanced) {
			return false
		}
	}
	return true
}

// needs is what taking the nodes away must save at least.
func (r *hunt) needs(set []candidate) int64 {
	var sum, most int64
	for _, c := range set {
		pool := r.p.Pools[c.pool]
		if pool.Chosen {
			sum += c.price * pool.MinPermille / 1000
			most = max(most, pool.MinSavings)
		} else {
			sum += max(c.price*leastPermille/1000, r.worth(c.Cost, worth<<min(r.p.Again, mostAgain)))
		}
	}
	return max(sum, most)
}

// worth is what moves of a cost must save.
func (r *hunt) worth(cost, permille int64) int64 {
	return int64(float64(cost) * r.perPod * float64(permille) / 1e6)
}

// groups replaces sets of nodes by cheaper ones.
func (r *hunt) groups() {
	for range len(r.nodes) {
		for i := range r.nodes {
			r.nodes[i].waste = r.t.waste(r.nodes[i].Name)
		}
		order := slices.Clone(r.nodes)
		slices.SortFunc(order, func(a, b candidate) int {
			return cmp.Or(
				cmp.Compare(float64(b.waste)/float64(1000+b.Cost), float64(a.waste)/float64(1000+a.Cost)),
				strings.Compare(a.Name, b.Name))
		})
		if !r.improve(order) {
			return
		}
	}
}

// improve takes the best set among the most wasteful nodes, if any pays.
func (r *hunt) improve(order []candidate) bool {
	var best []candidate
	var bestPlan *pack.Plan
	bestNet := int64(-1)
	try := func(set []candidate) {
		plan := r.t.without(0, r.p.Closed, names(set)...)
		if len(plan.Unschedulable) > 0 {
			return
		}
		saves := -plan.MicroUSD
		for _, c := range set {
			saves += c.price
		}
		net := saves - r.needs(set)
		if net <= bestNet || !r.pays(set, saves) {
			if len(set) == 1 && saves > 0 {
				r.keeps[set[0].Name] = TooLittle
			}
			return
		}
		nodes, ok := narrow(plan.NewNodes, net)
		if ok {
			if nodes, ok = spotForSpot(set, nodes, r.p.SpotToSpot); !ok && len(set) == 1 {
				r.keeps[set[0].Name] = SpotOnly
			}
		}
		if !ok {
			return
		}
		plan.NewNodes = nodes
		best, bestPlan, bestNet = slices.Clone(set), plan, net
	}
	left := map[string]int{}
	for k, v := range r.budget {
		left[k] = v
	}
	var set []candidate
	for _, c := range order {
		if left[c.pool] <= 0 {
			continue
		}
		left[c.pool]--
		set = append(set, c)
		if n := len(set); n <= 8 || n&(n-1) == 0 || n%16 == 0 && n <= 64 {
			try(set)
		}
	}
	if len(set) > 0 {
		try(set)
	}
	for _, c := range order[:min(len(order), 64)] {
		if r.budget[c.pool] > 0 {
			try([]candidate{c})
		}
	}
	if best == nil {
		return false
	}
	// Without some of its members the best set may be better still.
	for i := 0; len(best) <= trimmed && i < len(best); i++ {
		set := best
		try(slices.Concat(set[:i], set[i+1:]))
		if len(best) < len(set) {
			i = -1
		}
	}
	r.take(best, bestPlan)
	return true
}
