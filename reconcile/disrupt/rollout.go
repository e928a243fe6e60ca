package disrupt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/consolidate"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Rollout is how the replacement of a pool's drifted nodes has gone so far. It begins
// with one node, doubles with each success, and rests after a failure, longer each
// time: what is wrong with new nodes is met by one of them, not by all.
type Rollout struct {
	// Wave is how many may be under way at once; 0 counts as 1.
	Wave int
	// Failures in a row, and until when nothing is begun after the last.
	Failures int
	Until    time.Time
	// Why is what went wrong last.
	Why string
	// Held says that it is still wrong, so that time alone doesn't help.
	Held bool
}

const (
	// firstRest doubles with each failure in a row up to longestRest. A new node takes
	// about a minute to be ready, so an earlier try meets the same trouble.
	firstRest   = time.Minute
	longestRest = 30 * time.Minute
)

// failed returns what becomes of a rollout after a failure.
func (r Rollout) failed(why string, now time.Time) Rollout {
	rest := firstRest << min(r.Failures, 10)
	return Rollout{Wave: 1, Failures: r.Failures + 1, Until: now.Add(min(rest, longestRest)), Why: why}
}

// succeeded returns what becomes of it after replacements were ready.
func (r Rollout) succeeded() Rollout {
	return Rollout{Wave: min(max(r.Wave, 1)*2, 1<<20)}
}

// old is a machine that is to be replaced, and why: it is drifted, or of the age at
// which its pool wants that done within budgets.
type old struct {
	node  cluster.Node
	since time.Time
	why   string
	// unapproved says that its pool wants that approved, and nobody has.
	unapproved bool
}

func outdated(n cluster.Node, pool Pool, now time.Time) (old, bool) {
	o, is := old{node: n}, false
	if c := apimeta.FindStatusCondition(n.Claim.Status.Conditions, karpenter.ConditionDrifted); c != nil && c.Status == "True" {
		o.since, o.why, o.unapproved, is = c.LastTransitionTime.Time, c.Reason, !pool.approved(), true
	}
	if age := duration(pool.Options.SoftExpireAfter); age > 0 && (!is || o.unapproved) {
		if at := n.Claim.CreationTimestamp.Add(age); !now.Before(at) {
			return old{node: n, since: at, why: "softExpireAfter " + pool.Options.SoftExpireAfter}, true
		}
	}
	return o, is
}

// drift replaces outdated nodes, those first that have been for longest. Replacements
// are ready before a node goes.
func (d *decider) drift() {
	var list []old
	var closed []string
	busy := maps.Clone(d.in.Unsure)
	if busy == nil {
		busy = map[string]int{}
	}
	for _, c := range underWay(d.in.Nodes) {
		if c.Reason == drifted {
			for _, n := range d.nodes {
				if slices.Contains(c.Claims, n.Claim.Name) {
					busy[n.Pool()]++
				}
			}
		}
	}
	for _, n := range d.nodes {
		o, is := outdated(n, d.in.Pools[n.Pool()], d.in.Now)
		if is || !n.Initialized() || d.away(n) {
			closed = append(closed, n.Name()) // its pods would move twice, or wait
		}
		if !d.free(n) {
			continue
		}
		switch b, held := d.held(n); {
		case held:
			d.keep(n, drifted, b)
		case !is:
			d.notDrifted(n)
		default:
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b old) int { return cmp.Or(a.since.Compare(b.since)) })
	for _, o := range list {
		d.keep(o.node, drifted, d.replace(o, closed, busy))
	}
}

func (d *decider) notDrifted(n cluster.Node) {
	b := Block{Code: "NotDrifted", Message: "it is as its NodePool and class would launch it"}
	if age := duration(d.in.Pools[n.Pool()].Options.SoftExpireAfter); age > 0 {
		d.later(n.Claim.CreationTimestamp.Add(age))
	}
	d.keep(n, drifted, b)
}

// replace begins with the replacement of an outdated node, or says what keeps it.
func (d *decider) replace(o old, closed []string, busy map[string]int) Block {
	n := o.node
	pool := d.in.Pools[n.Pool()]
	roll := d.in.Rollouts[pool.Name]
	switch {
	case o.unapproved:
		return Block{Code: "Approval", Message: fmt.Sprintf("%s waits for approval: set driftApproval of NodePool %s to %q", o.why, pool.Name, pool.Target)}
	case roll.Held:
		return Block{Code: "Halted", Message: fmt.Sprintf("the rollout of NodePool %s is halted while %s", pool.Name, roll.Why)}
	case d.in.Now.Before(roll.Until):
		return Block{Code: "Halted", Until: roll.Until, Message: fmt.Sprintf("the rollout of NodePool %s rests after %d failures: %s", pool.Name, roll.Failures, roll.Why)}
	case busy[pool.Name] >= max(roll.Wave, 1):
		return Block{Code: "Wave", Message: fmt.Sprintf("%d replacements of NodePool %s are under way or have yet to prove themselves; more begin as these succeed", busy[pool.Name], pool.Name)}
	}
	// A bounded drain ends whatever protects the pods, so that they needn't be asked.
	if n.Claim.Spec.TerminationGracePeriod == nil {
		if b, ok := d.in.Guards.podBlock(n.Pods, d.in.Now); ok {
			return b
		}
	}
	if d.Allowed[pool.Name][drifted] <= 0 {
		return d.overBudget(pool.Name, drifted)
	}
	var c consolidate.Command
	var missing []pack.Unschedulable
	if pool.IsStatic() {
		// Its number of nodes doesn't depend on pods.
		if limit, ok := pool.Spec.Limits["nodes"]; ok && int64(d.machines[pool.Name]) >= limit.Value() {
			return Block{Code: "Limit", Message: fmt.Sprintf("the limit for nodes of NodePool %s, %s, leaves no room for a replacement", pool.Name, limit.String())}
		}
		d.machines[pool.Name]++
		d.trial.Drop(n.Name())
		c.New = []pack.NewNode{*provision.TemplateNode(pool.NodePool)}
	} else if c, missing = d.trial.Replace(n.Name(), closed); len(missing) > 0 {
		return Block{Code: "NoPlace", Message: fmt.Sprintf("pod %s would find no place: %s", missing[0].Pod, explain(missing[0]))}
	}
	busy[pool.Name]++
	d.start(drifted, []cluster.Node{n}, c)
	return Block{Code: codeStarting, Message: "it is replaced now: " + o.why}
}

func explain(u pack.Unschedulable) string {
	text := ""
	for i, r := range u.Reasons {
		if i > 0 {
			text += "; "
		}
		text += cluster.Explain(r)
	}
	return kube.OneLine(text)
}
