// Package pack decides where pending pods go and which nodes to open for them.
//
// It takes a [Problem] (instance types, pools, nodes, pods, daemons) and returns
// a [Plan]: which pod goes to which existing node, which nodes to open with
// which acceptable instance types, which pods fit nowhere and why, what that
// costs an hour and how far from the cheapest possible it can be at most.
//
//	plan, err := pack.Solve(problem, pack.Options{})
//
// A caller that watches a cluster keeps a [State] instead, tells it what
// changed, and asks it for plans and for what-ifs:
//
//	state, err := pack.NewState(problem)
//	err = state.SetPod(pod)
//	plan := state.Solve(pack.Options{})
//
// The package knows no Kubernetes types, reads no clock, draws no random number
// and imports the standard library alone. Strings stop at its edge: inside,
// labels, resources, types and pods are small integers in flat arrays. All
// quantities are integers: thousandths of a core for cpu, bytes for memory and
// storage, whole units for everything else, millionths of a dollar an hour for
// money. The same input in any order gives the same plan.
//
// Two promises hold. A pod that a plan puts on a node passes the filters of an
// unmodified kube-scheduler there once the plan's nodes exist. A pod that a plan
// calls unschedulable has a structured reason for each pool.
package pack
