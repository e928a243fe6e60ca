package pack

import (
	"cmp"
	"slices"
)

// A clique is pods of which a node takes only so many, whatever its size: those
// that keep each other off a node by anti-affinity or a host port, and those that
// are spread over nodes.
//
//	anti-affinity, own label selected     1 a node
//	spread by hostname, own label counted maxSkew a node
//
// To the search a clique is one more resource, of which every node has as much and
// each of its pods takes one. So it has a rate, as cores and memory have; bounds
// charge its pods for the node that each needs, and nodes are chosen as small as
// so many of them allow. Spread counts the emptiest node as having none, since a
// node could always be added.
type clique struct {
	group, most int32
	// nodes is how many nodes its pods need at least.
	nodes int64
	// name is the first of its pods' names and sum a number that cliques of the same
	// pods share: what tells cliques apart whatever was seen first.
	name string
	sum  uint64
}

// mostCliques is how many are minded. A second one seldom changes anything: it needs
// nodes as well, and the first one's will do.
const mostCliques = 3

// bindCliques extends demand and room by the cliques that need most nodes.
func (v *solver) bindCliques() {
	found := v.findCliques()
	if len(found) == 0 {
		return
	}
	dims := len(v.dims)
	for i := range v.kinds {
		k := &v.kinds[i]
		k.demand = k.demand[:dims+len(found)]
		for c := range found {
			if v.inClique(v.firm(int32(i)), found[c].group, found[c].most) {
				k.demand[dims+c] = 1
			}
		}
	}
	v.menu = v.menu.extended(dims, found)
}

// dropCliques takes out the cliques from the last of those that matter on: the others
// have no rate, because the nodes that the pods need anyway will do.
func (v *solver) dropCliques() {
	m, dims := v.menu, len(v.dims)
	keep := m.dims
	for keep > dims && v.boundRates[keep-1] == 0 {
		keep--
	}
	if keep == m.dims {
		return
	}
	v.menu = m.base.extended(dims, m.cliques[:keep-dims])
	v.boundRates = v.boundRates[:keep]
	v.remaining, v.least = v.remaining[:keep], v.least[:keep]
	for i := range v.kinds {
		v.kinds[i].demand = v.kinds[i].demand[:keep]
	}
	for i := range v.templates {
		v.templates[i].demand = v.templates[i].demand[:keep]
	}
}

// extended returns the menu with room for cliques.
func (m *menu) extended(dims int, cliques []clique) *menu {
	base := m
	if m.base != nil {
		base = m.base
	}
	if len(cliques) == 0 {
		return base
	}
	out := *base
	out.base, out.cliques, out.dims = base, cliques, dims+len(cliques)
	out.room = make([]int64, 0, len(base.entries)*out.dims)
	for e := range base.entries {
		out.room = append(out.room, base.at(int32(e))...)
		for i := range cliques {
			out.room = append(out.room, int64(cliques[i].most))
		}
	}
	return &out
}

// firm returns the kind whose constraints a kind has for certain. Under Priced it
// is the one that has given up all preferences: what others have is for sale.
func (v *solver) firm(k int32) *kind {
	b := &v.batches[v.kinds[k].batch]
	if v.priced(b) {
		return &v.kinds[b.last-1]
	}
	return &v.kinds[k]
}

// findCliques lists the cliques that need most nodes.
func (v *solver) findCliques() []clique {
	index := map[[2]int32]int{}
	var all []clique
	note := func(k *kind, group, most int32) {
		if v.groups[group].key >= 0 {
			return
		}
		id := [2]int32{group, most}
		if _, ok := index[id]; !ok && v.inClique(k, group, most) {
			index[id] = len(all)
			all = append(all, clique{group: group, most: most})
		}
	}
	for i := range v.batches {
		k := v.firm(v.batches[i].first)
		if !k.local {
			continue
		}
		for _, g := range k.avoid {
			note(k, g, 1)
		}
		for _, c := range k.spreads {
			note(k, c.group, c.maxSkew)
		}
	}
	for i := range v.batches {
		b := &v.batches[i]
		k := v.firm(b.first)
		if !k.local {
			continue
		}
		name := v.s.pods[b.pods[0]].name
		for _, g := range k.adds {
			if v.groups[g].key >= 0 {
				continue
			}
			for c := range all {
				if cl := &all[c]; cl.group == g && v.inClique(k, g, cl.most) {
					cl.nodes += int64(len(b.pods))
					cl.sum += hash(name)
					if cl.name == "" || name < cl.name {
						cl.name = name
					}
				}
			}
		}
	}
	for i := range all {
		all[i].nodes = (all[i].nodes + int64(all[i].most) - 1) / int64(all[i].most)
	}
	all = slices.DeleteFunc(all, func(c clique) bool { return c.nodes < 2 })
	compare := func(a, b clique) int {
		return cmp.Or(cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.most, b.most), cmp.Compare(a.name, b.name), cmp.Compare(a.sum, b.sum))
	}
	slices.SortFunc(all, compare)
	// One constraint makes two cliques of the same pods: those whom it is about, and
	// those who have it.
	all = slices.CompactFunc(all, func(a, b clique) bool { return compare(a, b) == 0 })
	return all[:min(len(all), mostCliques)]
}

// inClique reports whether a pod of the kind counts in the group wherever it is and
// minds how many others do.
func (v *solver) inClique(k *kind, group, most int32) bool {
	if !slices.Contains(k.adds, group) {
		return false
	}
	minds := slices.Contains(k.avoid, group)
	for i := range k.spreads {
		c := &k.spreads[i]
		minds = minds || c.group == group && c.self > 0 && c.maxSkew <= most
	}
	if !minds {
		return false
	}
	for i := range k.counts {
		if k.scheme.buckets[i].some && !slices.Contains(k.counts[i], group) {
			return false
		}
	}
	return true
}

// hash is FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
