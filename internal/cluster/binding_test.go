package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func (c *trial) nominate(pods []string) error {
	where := map[string]string{}
	for _, pod := range pods {
		if node := c.state.NodeName(c.places[pod]); node != "" {
			where[pod] = node
		}
	}
	return c.setNominated(where)
}

// astray are the pods that aren't bound where they are planned.
func (c *trial) astray(pods []string) []string {
	return slices.DeleteFunc(slices.Clone(pods), func(pod string) bool { return c.pod(pod).Spec.NodeName == c.state.NodeName(c.places[pod]) })
}

// bindInTurn binds pods in an order in which each one's constraints hold when its
// turn comes. A pod that goes astray is made anew and has a later turn.
func (c *trial) bindInTurn(pods []string) error {
	var why string
	held := map[string]int{} // how often a pod was left, up to now
	for attempt := range orders {
		var free, bound []string
		for _, pod := range pods {
			if ordered(c.pod(pod)) {
				bound = append(bound, pod)
			} else {
				free = append(free, pod)
			}
		}
		for _, list := range [][]string{free, bound} {
			c.s.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		// A pod without a hard spread may be planned where it holds up those that have one
		// and count it: such a plan holds if it comes after them.
		if attempt%4 >= 2 {
			slices.SortStableFunc(bound, func(a, b string) int { return cmp.Compare(spreads(c.pod(b)), spreads(c.pod(a))) })
		}
		// What others held up comes before them.
		slices.SortStableFunc(bound, func(a, b string) int { return cmp.Compare(held[b], held[a]) })
		// The room of those without constraints among pods is kept from the start, and
		// they can come at once, first or last. The others are nominated in their turn:
		// on the node that it tries a pod on, the scheduler counts those that are
		// nominated to it as if they ran there, and not those nominated elsewhere. Pods
		// of a hard spread would keep each other away.
		if err := c.nominate(free); err != nil {
			return err
		}
		turns := [][]string{free}
		if attempt%2 == 1 {
			turns = nil
		}
		for _, pod := range bound {
			turns = append(turns, []string{pod})
		}
		if attempt%2 == 1 {
			turns = append(turns, free)
		}
		left, err := c.take(turns)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		why = c.describe(left, c.places)
		for _, pod := range left {
			held[pod]++
		}
		if err := c.remake(c.s, pods); err != nil {
			return err
		}
	}
	return fmt.Errorf("pods aren't bound as planned in any of %d orders; in the last one these are left:%s", orders, why)
}

// take lets pods have their turns, again and again while that binds more of them. It
// returns those that are left.
func (c *trial) take(turns [][]string) (left []string, err error) {
	for n := -1; ; {
		left = nil
		for _, pods := range turns {
			if err := c.nominate(pods); err != nil {
				return nil, err
			}
			if err := c.ungate(pods); err != nil {
				return nil, err
			}
			if err := c.awaitTried(pods); err != nil {
				return nil, err
			}
			lost := c.astray(pods)
			if err := c.remake(c.s, lost); err != nil {
				return nil, err
			}
			left = append(left, lost...)
		}
		if len(left) == 0 || len(left) == n {
			return left, nil
		}
		n = len(left)
		turns = nil
		for _, pod := range left {
			c.tally.again++
			turns = append(turns, []string{pod})
		}
	}
}

// ordered reports whether it may matter when a pod comes.
func ordered(p *corev1.Pod) bool {
	a := p.Spec.Affinity
	return a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		spreads(p) > 0
}

// spreads counts a pod's hard topology spread constraints.
func spreads(p *corev1.Pod) int {
	n := 0
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			n++
		}
	}
	return n
}

// bindAll lets the scheduler have all pods and plans again for those that it leaves,
// as production does, until every pod is bound.
func (c *trial) bindAll(pods []string) error {
	nominate := c.nominate
	if c.mode == bare {
		nominate = func([]string) error { return nil }
	}
	if err := nominate(pods); err != nil {
		return err
	}
	if err := c.ungate(pods); err != nil {
		return err
	}
	if err := c.awaitTried(pods); err != nil {
		return err
	}
	planned := maps.Clone(c.places)
	for round := 0; ; round++ {
		left := c.unbound(pods)
		if len(left) == 0 {
			return nil
		}
		if round == rounds {
			return fmt.Errorf("after %d plans these pods are still not bound:%s", rounds, c.describe(left, planned))
		}
		c.tally.again += len(left)
		before := c.made
		if err := c.plan(); err != nil {
			return err
		}
		c.tally.further += c.made - before
		left = slices.DeleteFunc(left, func(pod string) bool {
			_, stranded := c.noPlace[pod]
			return stranded
		})
		if len(left) == 0 {
			c.tally.stranded += len(c.unbound(pods))
			return nil
		}
		for _, pod := range left {
			planned[pod] = c.places[pod]
		}
		if err := c.bringUp(func() int { return initialized }); err != nil {
			return err
		}
		// The scheduler tries a pod again after a back-off; a new one has none.
		if err := c.remake(c.s, left); err != nil {
			return err
		}
		if err := nominate(left); err != nil {
			return err
		}
		if err := c.ungate(left); err != nil {
			return err
		}
		if err := c.awaitTried(left); err != nil {
			return err
		}
	}
}

// daemonsRun waits until the new nodes run the daemons' pods that they should.
func (c *trial) daemonsRun() error {
	var stuck []string
	settled := c.await(settle, func() bool {
		stuck = nil
		for _, p := range c.pods() {
			if node, ok := strings.CutSuffix(daemonNode(p), "-node"); ok && p.Spec.NodeName == "" {
				stuck = append(stuck, node+": "+PodKey(p)+": "+refusal(p))
			}
		}
		return len(stuck) == 0 && c.daemonsComplete()
	})
	if !settled {
		return fmt.Errorf("daemons' pods find no room on new nodes: %v", stuck)
	}
	for _, p := range c.pods() {
		if daemonNode(p) != "" {
			c.tally.daemonPods++
		}
	}
	return nil
}

// nothingFitsAfterAll lets the scheduler try the pods that have no place.
func (c *trial) nothingFitsAfterAll() error {
	pods := slices.Sorted(maps.Keys(c.noPlace))
	if err := c.ungate(pods); err != nil {
		return err
	}
	if err := c.awaitTried(pods); err != nil {
		return err
	}
	// A machine may turn out to be what could not be asked for: that isn't counted.
	var bound []string
	for _, pod := range pods {
		on := c.pod(pod).Spec.NodeName
		if slices.ContainsFunc(c.s.nodes, func(n *corev1.Node) bool { return n.Name == on }) {
			bound = append(bound, pod)
		} else if on != "" {
			c.tally.lucky++
		}
	}
	if len(bound) > 0 {
		return fmt.Errorf("pods are bound to nodes that had no place for them by the plan:%s", c.describe(bound, nil))
	}
	return nil
}
