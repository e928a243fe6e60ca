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
// # How it is done, in reading order
//
//	problem.go plan.go        what goes in and what comes out
//	requirement.go            sets of label values
//
//	state.go pod.go node.go   the problem as it is kept: slots, free vectors, lists
//	spec.go filter.go         pods of equal content share a spec, specs a filter
//	symbol.go bitset.go       names as numbers, sets of small numbers
//	mention.go                the labels that pods talk about
//	topology.go               tallies: pods counted by zone and the like
//
//	space.go                  all that a new node may be, a column each
//	menu.go                   the columns that matter to some pods: breeds, entries
//	kind.go scheme.go         pending pods in batches, places in buckets
//	clique.go                 pods that a node takes few of, as a resource
//
//	solve.go                  the search, step by step
//	greedy.go choose.go       first fit, the largest first; what to open
//	admit.go budget.go        may a pod be here? may there be one more node?
//	retry.go                  other orders, if pods are left
//	packer.go                 pods to be filled in, by size
//	repack.go shortlist.go    new nodes filled anew, the least wasteful first
//
//	rates.go bound.go         what a core costs at best; no plan is cheaper than ...
//	columns.go knapsack.go    the cheapest fractional mix of filled nodes
//	mix.go                    the mix made whole
//	improve.go                a few nodes at a time, while it pays
//
//	report.go writer.go       the plan written down
//	product.go                no combination in it that doesn't suit
//	explain.go                why a pod has no place
//	lookup.go                 what the state holds
//	whatif.go                 the same for a cluster that differs a little
//
// What each of the searches is worth was measured: docs/packing.md has the figures.
//
// Two promises hold. A pod that a plan puts on a node passes the filters of an
// unmodified kube-scheduler there once the plan's nodes exist. A pod that a plan
// calls unschedulable has a structured reason for each pool.
package pack
