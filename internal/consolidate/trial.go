package consolidate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/pack"
)

// Trial is a state with changes that can be taken back. Decisions that are made on one
// trial don't count on the same room twice.
type Trial struct {
	state *pack.State
	o     pack.Options

	removed []pack.Node
	// home is where moved pods were, by name.
	home map[string]pack.Pod
	// opened are the new nodes in the order of their opening, by the names that they
	// have in the state.
	opened []opened
	// pinned are nodes that earlier decisions count on.
	pinned map[string]bool
}

type opened struct {
	name string
	node pack.NewNode
}

// Begin starts a trial. Pods that are pending, and those on nodes that are going
// already, get the places that they will find. Nobody else may use s before Undo.
func Begin(s *pack.State, going []string, o pack.Options) *Trial {
	o.Work = -1
	t := &Trial{state: s, o: o, home: map[string]pack.Pod{}, pinned: map[string]bool{}}
	going = slices.Sorted(slices.Values(going))
	pending := s.Pending()
	plan := s.WhatIf(pack.Change{Without: going}, o)
	for _, a := range plan.Assignments {
		t.pinned[a.Node] = true
	}
	where := t.commit(going, plan)
	for _, pod := range pending {
		if to := where[pod.Name]; to != "" {
			t.move(pod, to)
		}
	}
	return t
}

// Drop takes nodes away on which nothing runs that has to move.
func (t *Trial) Drop(nodes ...string) { t.commit(nodes, &pack.Plan{}) }

// Replace takes a node away whatever it costs and returns what must be there first.
// Its pods don't go to closed nodes. Pods without a place keep the node: it then
// returns them.
func (t *Trial) Replace(node string, closed []string) (Command, []pack.Unschedulable) {
	plan := t.without(0, closed, node)
	if len(plan.Unschedulable) > 0 {
		return Command{}, plan.Unschedulable
	}
	return t.replace(node, plan), nil
}

// ReplaceBy is Replace if something must be there first, and all of that suits.
func (t *Trial) ReplaceBy(node string, closed []string, suits func(pack.NewNode) bool) (Command, bool) {
	plan := t.without(0, closed, node)
	if len(plan.Unschedulable) > 0 || len(plan.NewNodes) == 0 || slices.ContainsFunc(plan.NewNodes, func(n pack.NewNode) bool { return !suits(n) }) {
		return Command{}, false
	}
	return t.replace(node, plan), true
}

func (t *Trial) replace(node string, plan *pack.Plan) Command {
	n, _ := t.state.Node(node)
	c := Command{Remove: []string{node}, New: plan.NewNodes, Saves: n.MicroUSD - plan.MicroUSD, Moves: len(t.state.PodsOn(node))}
	for _, a := range plan.Assignments {
		t.pinned[a.Node] = true
	}
	t.commit([]string{node}, plan)
	return c
}

// without asks what would become of the pods of some nodes.
func (t *Trial) without(work int, closed []string, nodes ...string) *pack.Plan {
	o := t.o
	o.Work = work
	return t.state.WhatIf(pack.Change{Without: nodes, Closed: closed, OnlyMoved: true}, o)
}

// commit carries a plan for the pods of some nodes out and returns where it puts pods.
func (t *Trial) commit(nodes []string, plan *pack.Plan) (where map[string]string) {
	where = map[string]string{}
	for _, a := range plan.Assignments {
		where[a.Pod] = a.Node
	}
	for _, n := range plan.NewNodes {
		// No node's name has a zero byte.
		name := fmt.Sprintf("\x00new/%d", len(t.opened))
		t.opened = append(t.opened, opened{name, n})
		t.state.SetNode(standIn(name, n))
		for _, pod := range n.Pods {
			where[pod] = name
		}
	}
	for _, name := range nodes {
		n, ok := t.state.Node(name)
		if !ok {
			continue
		}
		for _, pod := range t.state.PodsOn(name) {
			t.move(pod, where[pod.Name])
		}
		t.removed = append(t.removed, n)
		t.state.RemoveNode(name)
	}
	return where
}

func (t *Trial) move(pod pack.Pod, to string) {
	if _, moved := t.home[pod.Name]; !moved {
		t.home[pod.Name] = pod
	}
	pod.Node = to
	t.set(pod)
}

// standIn is a new node as pods see it that are counted on it. It takes no others: it
// is as small as it may be for its own.
func standIn(name string, n pack.NewNode) pack.Node {
	out := pack.Node{Name: name, Pool: n.Pool, Labels: map[string]string{pack.LabelPool: n.Pool}, Closed: true, Initialized: true, MicroUSD: n.MicroUSD, Allocatable: n.Requests, Capacity: n.Requests}
	for k, v := range n.Labels {
		out.Labels[k] = v
	}
	for _, r := range n.Requirements {
		if _, ok := out.Labels[r.Key]; !ok && r.Operator == pack.In && len(r.Values) == 1 {
			out.Labels[r.Key] = r.Values[0]
			continue
		}
		out.Requirements = append(out.Requirements, r)
	}
	return out
}

// Undo takes everything back.
func (t *Trial) Undo() {
	for _, n := range t.removed {
		t.state.SetNode(n)
	}
	for _, pod := range t.home {
		t.set(pod)
	}
	for _, o := range t.opened {
		t.state.RemoveNode(o.name)
	}
}

func (t *Trial) set(pod pack.Pod) {
	if err := t.state.SetPod(pod); err != nil {
		panic(err) // it was set before
	}
}

// waste is what the unused part of a node costs.
func (t *Trial) waste(name string) int64 {
	n, _ := t.state.Node(name)
	var cpu, memory int64
	for _, p := range t.state.PodsOn(name) {
		cpu += p.Spec.Requests[pack.CPU]
		memory += p.Spec.Requests[pack.Memory]
	}
	used := 0.0
	// The dearer half of a machine is its cores, at nearly every size and vendor.
	if a := n.Allocatable[pack.CPU]; a > 0 {
		used += 0.7 * float64(cpu) / float64(a)
	}
	if a := n.Allocatable[pack.Memory]; a > 0 {
		used += 0.3 * float64(memory) / float64(a)
	}
	return int64(float64(n.MicroUSD) * (1 - used))
}

// commands groups what was done since a mark into changes that don't depend on each
// other: a node belongs with the new nodes that its pods end on.
func (t *Trial) commands(since mark) []Command {
	parent := map[string]string{}
	root := func(x string) string {
		for parent[x] != "" {
			x = parent[x]
		}
		return x
	}
	for _, o := range t.opened[since.opened:] {
		for _, pod := range o.node.Pods {
			if from, to := root(t.home[pod].Node), root(o.name); from != to {
				parent[from] = to
			}
		}
	}
	byRoot := map[string]*Command{}
	at := func(x string) *Command {
		c := byRoot[root(x)]
		if c == nil {
			c = &Command{}
			byRoot[root(x)] = c
		}
		return c
	}
	moved := map[string]int{}
	for _, pod := range t.home {
		moved[pod.Node]++
	}
	for _, n := range t.removed[since.removed:] {
		c := at(n.Name)
		c.Remove = append(c.Remove, n.Name)
		c.Saves += n.MicroUSD
		c.Moves += moved[n.Name]
	}
	for _, o := range t.opened[since.opened:] {
		c := at(o.name)
		c.New = append(c.New, o.node)
		c.Saves -= o.node.MicroUSD
	}
	var out []Command
	for _, c := range byRoot {
		slices.Sort(c.Remove)
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Command) int { return strings.Compare(a.Remove[0], b.Remove[0]) })
	return out
}

// mark is a moment in a trial.
type mark struct{ removed, opened int }

func (t *Trial) mark() mark { return mark{len(t.removed), len(t.opened)} }

// Pinned reports whether an earlier decision of the trial, or a command under way,
// counts on a node.
func (t *Trial) Pinned(node string) bool { return t.pinned[node] }
