package provision

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
)

// placement is the topic of decisions about pods.
const placement = "Placement"

// note enters a plan into the decision record: each pod's place, or why it has none.
func (p *Planner) note(plan *pack.Plan, now time.Time) {
	for _, a := range plan.Assignments {
		p.book.Put(podSubject(a.Pod), now, record.Decision{
			Topic: placement, Verdict: "ExistingNode", Target: a.Node,
			Message: fmt.Sprintf("it fits on %s, which is there or on its way", a.Node),
		})
	}
	for _, n := range plan.NewNodes {
		if len(n.Pods) == 0 {
			continue
		}
		claim, ok := p.places[n.Pods[0]]
		if !ok {
			continue // its NodeClaim wasn't created, which is an error of its own
		}
		message := newNodeMessage(n)
		for _, pod := range n.Pods {
			p.book.Put(podSubject(pod), now, record.Decision{Topic: placement, Verdict: "NewNode", Target: claim, Message: message})
		}
	}
	for _, u := range plan.Unschedulable {
		d := record.Decision{Topic: placement, Verdict: "NoPlace", Message: "no node has room, and no NodePool can open one"}
		for _, r := range u.Reasons {
			d.Reasons = append(d.Reasons, cluster.Reason(r))
		}
		p.book.Put(podSubject(u.Pod), now, d)
	}
	p.notePools(plan, now)
}

// mostReasons is how many different reasons a pool's decision names: of pods that are
// alike there is one.
const mostReasons = 5

// notePools enters what the plan made of each pool: the nodes that it opens, or what kept
// it from opening one for pods that are left over.
func (p *Planner) notePools(plan *pack.Plan, now time.Time) {
	subject := func(pool string) record.Subject { return record.Subject{Kind: "NodePool", Name: pool} }
	opened, housed := map[string]int{}, map[string]int{}
	for _, n := range plan.NewNodes {
		if len(n.Pods) > 0 && p.places[n.Pods[0]] != "" {
			opened[n.Pool]++
			housed[n.Pool] += len(n.Pods)
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(opened)) {
		p.book.Put(subject(pool), now, record.Decision{
			Topic: "Nodes", Verdict: "Opened", Message: fmt.Sprintf("%s for %s that no node has room for", count(opened[pool], "node"), count(housed[pool], "pod")),
		})
	}
	left, reasons := map[string]int{}, map[string][]record.Reason{}
	for _, u := range plan.Unschedulable {
		counted := map[string]bool{}
		for _, r := range u.Reasons {
			if r.Pool == "" {
				continue
			}
			if !counted[r.Pool] {
				counted[r.Pool] = true
				left[r.Pool]++
			}
			if why := cluster.Reason(r); len(reasons[r.Pool]) < mostReasons && !slices.Contains(reasons[r.Pool], why) {
				reasons[r.Pool] = append(reasons[r.Pool], why)
			}
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(left)) {
		p.book.Put(subject(pool), now, record.Decision{
			Topic: placement, Verdict: "NoPlace", Message: fmt.Sprintf("it can open no node for %s", count(left[pool], "pod")), Reasons: reasons[pool],
		})
	}
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func newNodeMessage(n pack.NewNode) string {
	var types []string
	for i := range min(3, len(n.Options)) {
		types = append(types, n.Options[i].Type)
	}
	more := ""
	if rest := len(n.Options) - len(types); rest > 0 {
		more = fmt.Sprintf(" or %d more types", rest)
	}
	pods := "the pod alone"
	if len(n.Pods) > 1 {
		pods = fmt.Sprintf("it and %d more", len(n.Pods)-1)
	}
	return fmt.Sprintf("no node has room; NodePool %s opens one for %s, at $%.4f/h or little more: %s%s",
		n.Pool, pods, float64(n.MicroUSD)/1e6, strings.Join(types, ", "), more)
}

// podSubject takes a pod's name in plans apart: namespace/name.
func podSubject(name string) record.Subject {
	namespace, name, _ := strings.Cut(name, "/")
	return record.Subject{Kind: "Pod", Namespace: namespace, Name: name}
}
