package pack

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// peerPlan plans as the peer does, for problems that use nothing beyond what its
// own benchmark does: one pool, zones, spread, zonal affinity to pods of one's
// own label, hostname anti-affinity. It is written from the description of the
// peer's algorithm and gives the number of nodes and their price per hour:
//
//   - pods are placed one at a time, the most cores first, then the most memory;
//   - on the first open node that takes it, nodes with the fewest pods first, else
//     on a new one;
//   - a node keeps every type that fits all its pods, and is launched as the
//     cheapest of them;
//   - spread goes to the domain with the fewest pods.
func peerPlan(types []InstanceType, pods []Pod) (nodes int, microUSD int64) {
	zones := map[string]int{}
	var names []string
	for _, t := range types {
		for _, o := range t.Offerings {
			if _, ok := zones[o.Zone]; !ok {
				zones[o.Zone] = 0
				names = append(names, o.Zone)
			}
		}
	}
	slices.Sort(names)
	for i, z := range names {
		zones[z] = i
	}
	all := uint64(1)<<len(names) - 1
	type column struct {
		cpu, memory, pods int64
		price             [8]int64
	}
	var columns []column
	for _, t := range types {
		c := column{t.Allocatable[CPU], t.Allocatable[Memory], t.Allocatable[Pods], [8]int64{}}
		for z := range c.price {
			c.price[z] = math.MaxInt64
		}
		for _, o := range t.Offerings {
			z := zones[o.Zone]
			c.price[z] = min(c.price[z], o.MicroUSD)
		}
		columns = append(columns, c)
	}
	cheapest := func(c *column, mask uint64) int64 {
		least := int64(math.MaxInt64)
		for ; mask != 0; mask &= mask - 1 {
			least = min(least, c.price[bits.TrailingZeros64(mask)])
		}
		return least
	}
	type group struct{ key, value string }
	type node struct {
		cpu, memory int64
		pods        []*Pod
		mask        uint64
		fits        []int
	}
	counts := map[group]*[8]int{}
	count := func(g group) *[8]int {
		if counts[g] == nil {
			counts[g] = &[8]int{}
		}
		return counts[g]
	}
	watched := map[group]bool{}
	for i := range pods {
		for _, c := range pods[i].Spec.Spread {
			r := c.Selector.Requirements[0]
			watched[group{r.Key, r.Values[0]}] = true
		}
		for _, t := range pods[i].Spec.PodAffinity {
			r := t.Selector.Requirements[0]
			watched[group{r.Key, r.Values[0]}] = true
		}
	}
	var open []*node
	try := func(n *node, p *Pod) bool {
		mask := n.mask
		matching := func(g group) int {
			c := 0
			for _, q := range n.pods {
				if q.Labels[g.key] == g.value {
					c++
				}
			}
			return c
		}
		for _, c := range p.Spec.Spread {
			r := c.Selector.Requirements[0]
			g := group{r.Key, r.Values[0]}
			self := 0
			if p.Labels[g.key] == g.value {
				self = 1
			}
			if c.TopologyKey == LabelHostname {
				if matching(g)+self > int(c.MaxSkew) {
					return false
				}
				continue
			}
			low := math.MaxInt
			for z := range names {
				low = min(low, count(g)[z])
			}
			best := -1
			for m := mask; m != 0; m &= m - 1 {
				z := bits.TrailingZeros64(m)
				if count(g)[z]+self-low <= int(c.MaxSkew) && (best < 0 || count(g)[z] < count(g)[best]) {
					best = z
				}
			}
			if best < 0 {
				return false
			}
			mask = 1 << best
		}
		for _, t := range p.Spec.PodAffinity {
			r := t.Selector.Requirements[0]
			g := group{r.Key, r.Values[0]}
			with, some := uint64(0), false
			for z := range names {
				if count(g)[z] > 0 {
					with |= 1 << z
					some = true
				}
			}
			if some {
				mask &= with
			} else {
				mask = 1 << bits.TrailingZeros64(mask)
			}
		}
		for _, t := range p.Spec.PodAntiAffinity {
			r := t.Selector.Requirements[0]
			if matching(group{r.Key, r.Values[0]}) > 0 {
				return false
			}
		}
		if mask == 0 {
			return false
		}
		cpu, memory := n.cpu+p.Spec.Requests[CPU], n.memory+p.Spec.Requests[Memory]
		var fits []int
		for _, i := range n.fits {
			c := &columns[i]
			if cpu <= c.cpu && memory <= c.memory && int64(len(n.pods)+1) <= c.pods && cheapest(c, mask) < math.MaxInt64 {
				fits = append(fits, i)
			}
		}
		if len(fits) == 0 {
			return false
		}
		n.cpu, n.memory, n.mask, n.fits = cpu, memory, mask, fits
		n.pods = append(n.pods, p)
		if mask&(mask-1) == 0 {
			z := bits.TrailingZeros64(mask)
			for k, v := range p.Labels {
				if g := (group{k, v}); watched[g] {
					count(g)[z]++
				}
			}
		}
		return true
	}
	order := make([]*Pod, len(pods))
	for i := range pods {
		order[i] = &pods[i]
	}
	slices.SortFunc(order, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(b.Spec.Requests[CPU], a.Spec.Requests[CPU]), cmp.Compare(b.Spec.Requests[Memory], a.Spec.Requests[Memory]), cmp.Compare(a.Name, b.Name))
	})
	every := make([]int, len(columns))
	for i := range every {
		every[i] = i
	}
	for _, p := range order {
		slices.SortStableFunc(open, func(a, b *node) int { return cmp.Compare(len(a.pods), len(b.pods)) })
		if slices.ContainsFunc(open, func(n *node) bool { return try(n, p) }) {
			continue
		}
		if n := (&node{mask: all, fits: every}); try(n, p) {
			open = append(open, n)
		}
	}
	for _, n := range open {
		least := int64(math.MaxInt64)
		for _, i := range n.fits {
			least = min(least, cheapest(&columns[i], n.mask))
		}
		microUSD += least
	}
	return len(open), microUSD
}
