package pack

import (
	"cmp"
	"slices"
)

// report writes the solution down.
func (v *solver) report() *Plan {
	s := v.s
	plan := &Plan{}
	taken := make([]int, len(v.batches))
	names := func(list []string, kind, n int32) []string {
		bi := v.kinds[kind].batch
		b := &v.batches[bi]
		for _, p := range b.pods[taken[bi]:][:n] {
			list = append(list, s.pods[p].name)
		}
		taken[bi] += int(n)
		return list
	}
	var there []string
	for _, on := range v.onNodes {
		there = names(there[:0], on.kind, on.n)
		for _, pod := range there {
			plan.Assignments = append(plan.Assignments, Assignment{pod, s.nodes[on.node].Name})
		}
	}
	slices.SortFunc(plan.Assignments, func(a, b Assignment) int { return cmp.Compare(a.Pod, b.Pod) })
	// Bins are written in an order that depends on what is in them alone.
	v.rightSize()
	w := writer{v: v}
	order := v.binOrder()
	if len(order) > 0 {
		plan.NewNodes = make([]NewNode, 0, len(order))
	}
	for _, i := range order {
		b := &v.bins[i]
		n := w.write(b)
		pods := int32(0)
		for _, p := range b.parts {
			pods += p.n
		}
		n.Pods = make([]string, 0, pods)
		for _, p := range b.parts {
			n.Pods = names(n.Pods, p.kind, p.n)
		}
		slices.Sort(n.Pods)
		plan.MicroUSD += n.MicroUSD
		plan.NewNodes = append(plan.NewNodes, n)
	}
	slices.SortFunc(plan.NewNodes, func(a, b NewNode) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.MicroUSD, b.MicroUSD), slices.Compare(a.Pods, b.Pods))
	})
	plan.LowerBound = v.bound()
	for i := range v.batches {
		b := &v.batches[i]
		if b.placed == len(b.pods) {
			continue
		}
		reasons := v.explain(b)
		for _, p := range b.pods[b.placed:] {
			plan.Unschedulable = append(plan.Unschedulable, Unschedulable{s.pods[p].name, reasons})
		}
	}
	slices.SortFunc(plan.Unschedulable, func(a, b Unschedulable) int { return cmp.Compare(a.Pod, b.Pod) })
	return plan
}

// binOrder sorts the bins by what they are meant to become, then by content.
func (v *solver) binOrder() []int32 {
	rank := make([]int32, len(v.batches))
	for i, b := range v.order {
		rank[b] = int32(i)
	}
	order := make([]int32, 0, len(v.bins))
	for i := range v.bins {
		b := &v.bins[i]
		if len(b.parts) == 0 {
			continue
		}
		slices.SortFunc(b.parts, func(x, y part) int {
			return cmp.Or(cmp.Compare(rank[v.kinds[x.kind].batch], rank[v.kinds[y.kind].batch]), cmp.Compare(x.kind, y.kind), cmp.Compare(x.bucket, y.bucket))
		})
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &v.bins[i], &v.bins[j]
		return cmp.Or(cmp.Compare(a.entry, b.entry), slices.CompareFunc(a.parts, b.parts, func(x, y part) int {
			return cmp.Or(cmp.Compare(rank[v.kinds[x.kind].batch], rank[v.kinds[y.kind].batch]),
				cmp.Compare(x.kind, y.kind), cmp.Compare(x.bucket, y.bucket), cmp.Compare(y.n, x.n))
		}))
	})
	return order
}
