package disrupt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/consolidate"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

const (
	empty         = karpenter.DisruptionReasonEmpty
	drifted       = karpenter.DisruptionReasonDrifted
	underutilized = karpenter.DisruptionReasonUnderutilized
	unhealthy     = karpenter.DisruptionReasonUnhealthy
)

// reasons are those that a decision is made for, in the order in which they may use a
// budget up.
func reasons() []karpenter.DisruptionReason {
	return []karpenter.DisruptionReason{unhealthy, empty, drifted, underutilized}
}

// Input is everything that a decision depends on.
type Input struct {
	Now    time.Time
	Nodes  []cluster.Node
	Pools  map[string]Pool
	Guards Guards
	// Core is the fleet in the packing core's terms. It is as it was after a decision.
	Core *pack.State
	// Policy is how pods are planned for when they are pending, so that where they move
	// suits them as well.
	Policy pack.Options
	// Rollouts is how each pool's replacement of drifted nodes has gone so far.
	Rollouts map[string]Rollout
	// Unsure counts each pool's replacements of drifted nodes whose pods have yet to do
	// well.
	Unsure map[string]int
	// Failed says until when a pool isn't consolidated after a replacement has failed.
	Failed map[string]time.Time
	// Quiet says that pods have stopped coming and going, so that a search is worth its
	// while.
	Quiet bool
	// Settled says that every pod has a node and none is about to move, so that no node
	// waits for pods that were planned onto it.
	Settled bool
	// Landing says that the last search found something so lately that nodes that go are
	// worth waiting for where they use up a part of a budget: the more nodes may go
	// together, the better what takes their place.
	Landing bool
	// Seen is the mark of the last search, which found nothing. One that would be the
	// same isn't made; Kept is what it said of each node that stayed.
	Seen uint64
	Kept map[string]consolidate.Keep
	// Away are zones, by their IDs, that the cluster's traffic is moved away from. What
	// runs there stays, and nothing is moved there.
	Away map[string]bool
	// Found is how many searches in a row have found something lately.
	Found int
	// SpotToSpot and NodeRepair are Karpenter's feature gates.
	SpotToSpot, NodeRepair bool
}

// Decision is what to do, and what each machine's case is.
type Decision struct {
	// Start are the commands to begin with.
	Start []Command
	// Reboot are the NodeClaims whose instances are to be rebooted.
	Reboot []string
	// Verdicts has one for each of our machines that isn't going and each reason, sorted
	// by machine, then reason.
	Verdicts []Verdict
	// Searched says that the fleet was searched, Mark is the search's mark.
	Searched bool
	Mark     uint64
	Kept     map[string]consolidate.Keep
	// Before and After are what the candidates of the search cost in micro-dollars an
	// hour, and what they will.
	Before, After int64
	// Price is what all machines that stayed so far cost.
	Price int64
	// Next is when to look again although nothing changes, zero for never.
	Next time.Time
	// Allowed is how many more nodes may go, by pool and reason.
	Allowed map[string]map[karpenter.DisruptionReason]int
}

// Verdict says of one machine and one reason whether it goes, or what keeps it.
type Verdict struct {
	Claim, Node, Pool string
	Reason            karpenter.DisruptionReason
	Block
}

// Block is what keeps a machine. The codes Going and Starting mean that nothing does.
type Block struct {
	// Code is one CamelCase word for programs.
	Code string
	// Message says it for people.
	Message string
	// Until is when it ends by itself, zero if that isn't known.
	Until time.Time
}

// Codes of machines that nothing keeps, and of those whose reboot is to show.
const (
	codeGoing    = "Going"
	codeStarting = "Starting"
	codeRebooted = "Rebooted"
	// codeRepairOff is the reason of the pool's event too.
	codeRepairOff = "NodeRepairOff"
)

// decider works one decision out.
type decider struct {
	in Input
	Decision
	trial *consolidate.Trial
	// going are the machines that commands take away, replacing those that they have
	// brought in, both by claim.
	going, replacing map[string]Command
	// limits and left are by pool and reason.
	limits map[string]map[karpenter.DisruptionReason]sugar.Limit
	taken  map[string]int
	// machines counts each pool's claims, those that go and those about to come included.
	machines map[string]int
	// by node of ours that may be looked at, what keeps it for each reason.
	verdicts map[string]map[karpenter.DisruptionReason]Block
	nodes    []cluster.Node
}

// Decide looks at all machines and all reasons together.
func Decide(in Input) Decision {
	d := &decider{
		in: in, going: map[string]Command{}, replacing: map[string]Command{}, taken: map[string]int{}, machines: map[string]int{},
		limits:   map[string]map[karpenter.DisruptionReason]sugar.Limit{},
		verdicts: map[string]map[karpenter.DisruptionReason]Block{},
	}
	var marked []string
	for _, c := range underWay(in.Nodes) {
		for _, name := range c.Claims {
			d.going[name] = c
		}
		for _, name := range c.Replacements {
			d.replacing[name] = c
		}
	}
	for _, n := range in.Nodes {
		if n.Claim == nil || n.Deleting() {
			continue
		}
		if _, ok := d.going[n.Claim.Name]; ok {
			marked = append(marked, n.Name())
		}
		d.nodes = append(d.nodes, n)
		d.verdicts[n.Claim.Name] = map[karpenter.DisruptionReason]Block{}
	}
	d.count()
	d.Price = price(in)
	d.trial = consolidate.Begin(in.Core, marked, in.Policy)
	defer d.trial.Undo()
	d.repair()
	d.empties()
	d.drift()
	d.search()
	d.report()
	return d.Decision
}

// count works out how many nodes of each pool may go for each reason: what the budgets
// allow, less those that are on their way out or down already.
func (d *decider) count() {
	total, down, dead := map[string]int{}, map[string]int{}, map[string]int{}
	for _, n := range d.in.Nodes {
		if n.Claim == nil {
			continue
		}
		d.machines[n.Pool()]++
		if !n.Initialized() {
			continue
		}
		_, going := d.going[n.Claim.Name]
		total[n.Pool()]++
		switch {
		case n.Deleting() || going || d.recovering(n):
			down[n.Pool()]++
		case !cluster.Ready(n.Node):
			dead[n.Pool()]++
		}
	}
	d.Allowed = map[string]map[karpenter.DisruptionReason]int{}
	for name, p := range d.in.Pools {
		d.limits[name], d.Allowed[name] = map[karpenter.DisruptionReason]sugar.Limit{}, map[karpenter.DisruptionReason]int{}
		for _, r := range reasons() {
			l, err := sugar.Allowed(sugar.BudgetsOf(p.Spec, p.Options), r, total[name], d.in.Now)
			if err != nil {
				l = sugar.Limit{By: err.Error()}
			}
			used := down[name]
			if r != unhealthy {
				used += dead[name]
			}
			d.limits[name][r] = l
			d.Allowed[name][r] = max(0, l.Nodes-used)
		}
	}
}

// take uses the budgets of a node's pool up.
func (d *decider) take(n cluster.Node) {
	for r := range d.Allowed[n.Pool()] {
		d.Allowed[n.Pool()][r] = max(0, d.Allowed[n.Pool()][r]-1)
	}
	d.taken[n.Pool()]++
}

// start begins with a command.
func (d *decider) start(reason karpenter.DisruptionReason, nodes []cluster.Node, c consolidate.Command) {
	for _, n := range nodes {
		d.verdicts[n.Claim.Name][reason] = Block{Code: codeStarting, Message: "it is taken away now"}
		d.take(n)
	}
	cmd := newCommand(reason, nodes, c.New, d.in.Now)
	cmd.Saves, cmd.Moves = c.Saves, c.Moves
	d.Start = append(d.Start, cmd)
}

// later asks for another look.
func (d *decider) later(t time.Time) {
	if d.Next.IsZero() || t.Before(d.Next) {
		d.Next = t
	}
}

// keep notes what keeps a node for a reason.
func (d *decider) keep(n cluster.Node, reason karpenter.DisruptionReason, b Block) {
	d.verdicts[n.Claim.Name][reason] = b
	if !b.Until.IsZero() {
		d.later(b.Until)
	}
}

// starting reports whether a node is taken away by a command of this decision.
func (d *decider) starting(n cluster.Node) bool {
	for _, b := range d.verdicts[n.Claim.Name] {
		if b.Code == codeStarting {
			return true
		}
	}
	return false
}

// overBudget says which budget keeps nodes for a reason.
func (d *decider) overBudget(pool string, reason karpenter.DisruptionReason) Block {
	l := d.limits[pool][reason]
	if l.Nodes == 0 {
		code := "Budget"
		if l.Until.IsZero() {
			code = "NoBudget" // nothing that ends by itself
		}
		return Block{Code: code, Until: l.Until, Message: fmt.Sprintf("NodePool %s's budget for %s allows none (%s)", pool, reason, l.By)}
	}
	return Block{
		Code: "Budget", Until: l.Until,
		Message: fmt.Sprintf("NodePool %s's budget for %s (%s) is used up: nodes that are going or not ready count", pool, reason, l.By),
	}
}

// held says what keeps a node whatever the reason is, other than ill health.
func (d *decider) held(n cluster.Node) (Block, bool) {
	pool, known := d.in.Pools[n.Pool()]
	until, paused := pool.Options.PausedUntil(d.in.Now)
	switch c, replacing := d.replacing[n.Claim.Name]; {
	case n.Pool() == "":
		return Block{Code: "Standalone", Message: "it belongs to no NodePool, so that it is taken away only when it expires or somebody deletes it"}, true
	case !known:
		return Block{Code: "NoNodePool", Message: fmt.Sprintf("its NodePool %q is gone", n.Pool())}, true
	case pool.Err != nil:
		return Block{Code: "UnreadableOptions", Message: kube.OneLine(pool.Err.Error())}, true
	case paused:
		return Block{Code: "Paused", Until: until, Message: fmt.Sprintf("NodePool %s is paused by %s: %s", pool.Name, pool.Options.Pause.Author, pool.Options.Pause.Reason)}, true
	case d.away(n):
		return d.shifted(n), true
	case !n.Initialized():
		return Block{Code: "NotInitialized", Message: "it isn't initialized yet"}, true
	case replacing:
		return Block{Code: "Replacement", Message: fmt.Sprintf("it takes the place of %s", strings.Join(c.Claims, ", "))}, true
	case n.Claim.Annotations[karpenter.AnnotationDoNotDisrupt] == "true" || n.Node.Annotations[karpenter.AnnotationDoNotDisrupt] == "true":
		return Block{Code: "DoNotDisrupt", Message: "it has the annotation " + karpenter.AnnotationDoNotDisrupt}, true
	case d.recovering(n):
		return d.rebooted(n), true
	case !d.in.Settled && d.in.Now.Before(n.NominatedUntil):
		return Block{Code: "Nominated", Message: "pods are expected on it", Until: n.NominatedUntil}, true
	}
	return Block{}, false
}

// away reports whether a node is in a zone that traffic is moved away from.
func (d *decider) away(n cluster.Node) bool { return shiftedAway(n, d.in.Away) }

func shiftedAway(n cluster.Node, away map[string]bool) bool {
	return away[n.Labels()[aws.LabelTopologyZoneID]]
}

func (d *decider) shifted(n cluster.Node) Block {
	return Block{Code: "ZonalShift", Message: fmt.Sprintf("a zonal shift moves traffic away from zone %s; its nodes stay until it ends", n.Labels()[aws.LabelTopologyZoneID])}
}

// empties takes away the nodes on which nothing has run for long enough.
func (d *decider) empties() {
	for _, n := range d.nodes {
		if !d.free(n) {
			continue
		}
		if b, ok := d.held(n); ok {
			d.keep(n, empty, b)
			continue
		}
		if !vacant(n) {
			d.keep(n, empty, Block{Code: "NotEmpty", Message: "pods run on it that would have to move"})
			continue
		}
		if d.trial.Pinned(n.Name()) {
			d.keep(n, empty, Block{Code: "Nominated", Message: "pods of nodes that go are expected on it"})
			continue
		}
		if b, ok := d.in.Guards.podBlock(n.Pods, d.in.Now); ok {
			d.keep(n, empty, b)
			continue
		}
		if b, ok := d.unsettled(n, empty); ok {
			d.keep(n, empty, b)
			continue
		}
		if d.Allowed[n.Pool()][empty] <= 0 {
			d.keep(n, empty, d.overBudget(n.Pool(), empty))
			continue
		}
		price := int64(0)
		if x, ok := d.in.Core.Node(n.Name()); ok {
			price = x.MicroUSD
		}
		d.trial.Drop(n.Name())
		d.start(empty, []cluster.Node{n}, consolidate.Command{Saves: price})
	}
}

// free reports whether no command has to do with a node yet, and notes it otherwise.
func (d *decider) free(n cluster.Node) bool {
	c, going := d.going[n.Claim.Name]
	if !going {
		return !d.starting(n)
	}
	for _, r := range reasons() {
		d.verdicts[n.Claim.Name][r] = Block{Code: codeGoing, Message: fmt.Sprintf("command %s takes it away (%s)", c.ID, c.Reason)}
	}
	return false
}

// unsettled says what keeps a node from consolidation for its or its pods' age.
func (d *decider) unsettled(n cluster.Node, reason karpenter.DisruptionReason) (Block, bool) {
	pool := d.in.Pools[n.Pool()]
	wait := pool.settleTime(reason)
	switch at := quietSince(n); {
	case pool.IsStatic():
		return Block{Code: "StaticNodePool", Message: "its NodePool has a fixed number of nodes"}, true
	case wait.IsNever():
		return Block{Code: "Never", Message: "consolidateAfter is Never"}, true
	case d.in.Now.Before(at.Add(*wait.Duration)):
		return Block{Code: "ConsolidateAfter", Until: at.Add(*wait.Duration), Message: fmt.Sprintf("pods came or went less than %s ago", wait)}, true
	}
	if old := n.Claim.CreationTimestamp.Add(duration(pool.Options.MinNodeLifetime)); d.in.Now.Before(old) {
		return Block{Code: "MinNodeLifetime", Until: old, Message: fmt.Sprintf("it is younger than %s", pool.Options.MinNodeLifetime)}, true
	}
	return Block{}, false
}

// search looks for a cheaper fleet.
func (d *decider) search() {
	var p consolidate.Problem
	p.Pools, p.SpotToSpot, p.Again = map[string]consolidate.Pool{}, d.in.SpotToSpot, d.in.Found
	byName := map[string]cluster.Node{}
	for name, pool := range d.in.Pools {
		p.Pools[name] = pool.bounds(d.Allowed[name][underutilized])
	}
	budget := false
	candidates := map[string]int{}
	for _, n := range d.nodes {
		if !n.Initialized() || d.away(n) {
			p.Closed = append(p.Closed, n.Name())
		}
		if !d.free(n) {
			continue
		}
		b, ok := d.consolidatable(n)
		if b.Code == "ConsolidateAfter" {
			// A pod that has just come to it would be in the way of its own rest.
			p.Closed = append(p.Closed, n.Name())
		}
		if !ok {
			d.keep(n, underutilized, b)
			continue
		}
		byName[n.Name()] = n
		p.Nodes = append(p.Nodes, consolidate.Node{Name: n.Name(), Cost: evictionCost(n.Pods)})
		candidates[n.Pool()]++
		budget = budget || d.Allowed[n.Pool()][underutilized] > 0
	}
	kept := d.in.Kept
	d.Mark = mark(d.in, p)
	if len(p.Nodes) > 0 && budget && d.in.Quiet && !d.cramped(candidates) && d.Mark != d.in.Seen {
		p.Nodes = d.climb(p.Nodes, byName, p.Closed)
		for name, pool := range d.in.Pools {
			p.Pools[name] = pool.bounds(d.Allowed[name][underutilized])
		}
		got := d.trial.Search(p)
		d.Searched, d.Kept, d.Before, d.After = true, got.Keeps, got.Before, got.After
		kept = got.Keeps
		for _, c := range got.Commands {
			var nodes []cluster.Node
			for _, name := range c.Remove {
				nodes = append(nodes, byName[name])
			}
			d.start(underutilized, nodes, c)
		}
	}
	for _, n := range byName {
		if !d.starting(n) {
			d.keep(n, underutilized, d.kept(n, kept))
		}
	}
}

// cramped reports whether nodes that are going leave less than a pool's whole budget
// soon after a search that found something.
func (d *decider) cramped(candidates map[string]int) bool {
	return d.in.Landing && slices.ContainsFunc(d.in.Nodes, func(n cluster.Node) bool {
		_, going := commandOf(n)
		return (going || n.Claim != nil && n.Deleting()) && d.Allowed[n.Pool()][underutilized] < candidates[n.Pool()]
	})
}

// climb replaces nodes by ones of pools with a higher weight, where their own pool
// wants that, and returns those that stay. A node is launched from a pool of lower
// weight when a higher one has no capacity or has met its limit, which ends.
func (d *decider) climb(nodes []consolidate.Node, byName map[string]cluster.Node, closed []string) []consolidate.Node {
	highest := int32(0)
	for _, p := range d.in.Pools {
		highest = max(highest, weight(p))
	}
	var stay []consolidate.Node
	for _, c := range nodes {
		n := byName[c.Name]
		pool := d.in.Pools[n.Pool()]
		own := weight(pool)
		if !pool.Options.ReturnToHigherWeight || own >= highest || d.Allowed[n.Pool()][underutilized] <= 0 || d.trial.Pinned(c.Name) {
			stay = append(stay, c)
			continue
		}
		cmd, ok := d.trial.ReplaceBy(c.Name, closed, func(x pack.NewNode) bool { return weight(d.in.Pools[x.Pool]) > own })
		if !ok {
			stay = append(stay, c)
			continue
		}
		d.start(underutilized, []cluster.Node{n}, cmd)
	}
	return stay
}

// weight is a pool's, 0 where it has none: the API's values begin at 1.
func weight(p Pool) int32 {
	if p.NodePool == nil || p.Spec.Weight == nil {
		return 0
	}
	return *p.Spec.Weight
}

func (d *decider) kept(n cluster.Node, kept map[string]consolidate.Keep) Block {
	k, ok := kept[n.Name()]
	switch {
	case d.limits[n.Pool()][underutilized].Nodes == 0 || ok && k == consolidate.NoBudget:
		return d.overBudget(n.Pool(), underutilized)
	case !ok:
		return Block{Code: "NotSearched", Message: "pods are coming and going; the fleet is searched when that ends"}
	case k == consolidate.NoPlace:
		return Block{Code: "NoPlace", Message: "some of its pods would find no place"}
	case k == consolidate.TooLittle:
		return Block{Code: "TooLittle", Message: "replacing it would save too little for the pods that move"}
	case k == consolidate.SpotOnly:
		return Block{Code: "SpotToSpot", Message: "only another spot node would be cheaper, which needs the gate SpotToSpotConsolidation and 15 types"}
	}
	return Block{Code: "NoCheaper", Message: "its pods find no cheaper place"}
}

// consolidatable reports whether a node may be consolidated for being underused, or
// what keeps it.
func (d *decider) consolidatable(n cluster.Node) (Block, bool) {
	if b, ok := d.held(n); ok {
		return b, false
	}
	pool := d.in.Pools[n.Pool()]
	if pool.Spec.Disruption.ConsolidationPolicy == karpenter.ConsolidationPolicyWhenEmpty {
		return Block{Code: "WhenEmpty", Message: "its NodePool consolidates empty nodes alone"}, false
	}
	if b, ok := d.unsettled(n, underutilized); ok {
		return b, false
	}
	if until := d.in.Failed[pool.Name]; d.in.Now.Before(until) {
		return Block{Code: "Halted", Until: until, Message: fmt.Sprintf("replacements for NodePool %s have failed", pool.Name)}, false
	}
	if b, ok := d.in.Guards.podBlock(n.Pods, d.in.Now); ok {
		return b, false
	}
	if vacant(n) {
		return d.verdicts[n.Claim.Name][empty], false
	}
	return Block{}, true
}

// report lists the verdicts.
func (d *decider) report() {
	for _, n := range d.nodes {
		all := d.verdicts[n.Claim.Name]
		node := ""
		if n.Node != nil {
			node = n.Node.Name
		}
		for _, r := range slices.Sorted(maps.Keys(all)) {
			d.Verdicts = append(d.Verdicts, Verdict{Claim: n.Claim.Name, Node: node, Pool: n.Pool(), Reason: r, Block: all[r]})
		}
	}
}
