package pack

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// verify checks a plan by the letter of the rules: whatever its new nodes turn
// out to be, a scheduler that knows filters alone can bind every planned pod where
// the plan has it, in some order; limits and reservations hold; every pod is
// accounted for once.
func verify(p Problem, plan *Plan, r *rand.Rand) error {
	seen := map[string]int{}
	for _, a := range plan.Assignments {
		seen[a.Pod]++
	}
	for _, n := range plan.NewNodes {
		for _, pod := range n.Pods {
			seen[pod]++
		}
		if len(n.Pods) == 0 {
			return fmt.Errorf("a new node of pool %s has no pods", n.Pool)
		}
	}
	for _, u := range plan.Unschedulable {
		seen[u.Pod]++
		if len(u.Reasons) == 0 {
			return fmt.Errorf("pod %s is unschedulable without a reason", u.Pod)
		}
	}
	for _, pod := range p.Pods {
		want := 0
		if pod.Node == "" {
			want = 1
		}
		if seen[pod.Name] != want {
			return fmt.Errorf("pod %s is accounted for %d times, want %d", pod.Name, seen[pod.Name], want)
		}
	}
	pools := map[string]*Pool{}
	for i := range p.Pools {
		pools[p.Pools[i].Name] = &p.Pools[i]
	}
	world := Problem{Daemons: p.Daemons, Nodes: slices.Clone(p.Nodes)}
	where := map[string]string{}
	for _, a := range plan.Assignments {
		where[a.Pod] = a.Node
	}
	reserved := map[string]int{}
	used := map[string]Resources{}
	usedAll := Resources{}
	use := func(pool string, c Resources) {
		if used[pool] == nil {
			used[pool] = Resources{}
		}
		for k, q := range c {
			used[pool][k] += q
			usedAll[k] += q
		}
		used[pool][NodeCount]++
		usedAll[NodeCount]++
	}
	for _, n := range p.Nodes {
		use(n.Pool, n.Capacity)
	}
	total := int64(0)
	for i, n := range plan.NewNodes {
		pool := pools[n.Pool]
		if len(n.Options) == 0 {
			return fmt.Errorf("new node %d has no options", i)
		}
		if n.MicroUSD != n.Options[0].Offerings[0].MicroUSD {
			return fmt.Errorf("new node %d costs %d, its first offering %d", i, n.MicroUSD, n.Options[0].Offerings[0].MicroUSD)
		}
		total += n.MicroUSD
		if n.ReservationID != "" {
			reserved[n.ReservationID]++
		}
		option := n.Options[r.IntN(len(n.Options))]
		offering := option.Offerings[r.IntN(len(option.Offerings))]
		if offering.ReservationID != n.ReservationID && offering.ReservationID != "" {
			return fmt.Errorf("new node %d may take reservation %q without having it", i, offering.ReservationID)
		}
		at := slices.IndexFunc(pool.Types, func(t InstanceType) bool { return t.Name == option.Type })
		if at < 0 {
			return fmt.Errorf("new node %d may become %q, which its pool has not", i, option.Type)
		}
		typ := &pool.Types[at]
		if !slices.ContainsFunc(typ.Offerings, func(o Offering) bool { return o.Available && cmp.Equal(o, offering) }) {
			return fmt.Errorf("new node %d has an offering that is not for sale: %+v", i, offering)
		}
		labels := map[string]string{}
		maps.Copy(labels, n.Labels)
		maps.Copy(labels, typ.Labels)
		maps.Copy(labels, offering.Labels)
		name := fmt.Sprintf("new-%d", i)
		labels[LabelInstanceType], labels[LabelZone], labels[LabelCapacityType] = typ.Name, offering.Zone, offering.CapacityType
		labels[LabelPool], labels[LabelHostname] = pool.Name, name
		for _, req := range slices.Concat(pool.Requirements, n.Requirements) {
			v, ok := labels[req.Key]
			set := req.Set()
			if ok && !set.Has(v) || !ok && !set.HasAbsent() && (pool.definedByTypes(req.Key) || slices.ContainsFunc(n.Requirements, func(q Requirement) bool { return q.Key == req.Key && q.Operator == In && len(q.Values) == 1 })) {
				return fmt.Errorf("new node %d with labels %v violates %+v", i, labels, req)
			}
		}
		if err := minValuesHold(pool, &n); err != nil {
			return fmt.Errorf("new node %d: %w", i, err)
		}
		use(n.Pool, typ.Capacity)
		world.Nodes = append(world.Nodes, Node{Name: name, Labels: labels, Taints: pool.Taints, Capacity: typ.Capacity, Allocatable: typ.Allocatable, Attach: typ.Attach, Initialized: true})
		for _, pod := range n.Pods {
			where[pod] = name
		}
	}
	if total != plan.MicroUSD {
		return fmt.Errorf("plan says it costs %d, its nodes cost %d", plan.MicroUSD, total)
	}
	if plan.LowerBound > plan.MicroUSD {
		return fmt.Errorf("lower bound %d is above the cost %d", plan.LowerBound, plan.MicroUSD)
	}
	for id, n := range reserved {
		w := plainWorld{p: p}
		if have := w.reservedCount(id); n > have {
			return fmt.Errorf("reservation %s has %d, the plan takes %d", id, have, n)
		}
	}
	before := map[string]Resources{}
	for _, n := range p.Nodes {
		if before[n.Pool] == nil {
			before[n.Pool] = Resources{}
		}
		for k, q := range n.Capacity {
			before[n.Pool][k] += q
		}
		before[n.Pool][NodeCount]++
	}
	for name, pool := range pools {
		for k, limit := range pool.Limits {
			if used[name][k] > limit && used[name][k] > before[name][k] {
				return fmt.Errorf("pool %s has %d of %s, its limit is %d", name, used[name][k], k, limit)
			}
		}
	}
	for k, limit := range p.Limits {
		if usedAll[k] > limit && len(plan.NewNodes) > 0 {
			return fmt.Errorf("all pools have %d of %s, the limit is %d", usedAll[k], k, limit)
		}
	}
	// Constraints can hold in one order of binding and not in another. Nearly every
	// plan holds in any; for the rest some order has to do.
	err := bindAll(world, p, where)
	for range 30 {
		if err == nil {
			break
		}
		q := p
		q.Pods = slices.Clone(p.Pods)
		r.Shuffle(len(q.Pods), func(a, b int) { q.Pods[a], q.Pods[b] = q.Pods[b], q.Pods[a] })
		err = bindAll(world, q, where)
	}
	return err
}

// minValuesHold checks that a new node's options have as many values as its pool
// asks for.
func minValuesHold(pool *Pool, n *NewNode) error {
	for _, req := range pool.Requirements {
		seen := map[string]bool{}
		for _, o := range n.Options {
			at := slices.IndexFunc(pool.Types, func(t InstanceType) bool { return t.Name == o.Type })
			for _, f := range o.Offerings {
				labels := map[string]string{LabelInstanceType: o.Type, LabelZone: f.Zone, LabelCapacityType: f.CapacityType}
				maps.Copy(labels, pool.Types[at].Labels)
				maps.Copy(labels, f.Labels)
				if v, ok := labels[req.Key]; ok {
					seen[v] = true
				}
			}
		}
		if len(seen) < req.MinValues {
			return fmt.Errorf("%d values of %s are left of %d", len(seen), req.Key, req.MinValues)
		}
		if at := slices.IndexFunc(n.Requirements, func(r Requirement) bool { return r.Key == req.Key }); req.MinValues > 0 && (n.Relaxed || at < 0 || n.Requirements[at].MinValues < req.MinValues) {
			return fmt.Errorf("its claim does not ask for %d values of %s", req.MinValues, req.Key)
		}
	}
	return nil
}

// bindAll binds pods to their nodes as filters allow, in whatever order works.
func bindAll(world, p Problem, where map[string]string) error {
	for _, pod := range p.Pods {
		if pod.Node != "" {
			world.Pods = append(world.Pods, pod)
		}
	}
	w := newPlainWorld(world, Options{Preferences: Ignore})
	byName := map[string]*plainNode{}
	for _, n := range w.nodes {
		byName[n.name] = n
	}
	var left []*Pod
	for i := range p.Pods {
		if _, ok := where[p.Pods[i].Name]; ok {
			left = append(left, &p.Pods[i])
		}
	}
	for len(left) > 0 {
		var next []*Pod
		for _, pod := range left {
			if !w.add(byName[where[pod.Name]], pod, w.variants(pod.Spec)[0]) {
				next = append(next, pod)
			}
		}
		if len(next) == len(left) {
			var names []string
			for _, pod := range next {
				names = append(names, pod.Name+" on "+where[pod.Name])
			}
			return fmt.Errorf("the scheduler would refuse %v", names)
		}
		left = next
	}
	return nil
}

// shuffled returns the problem with everything in another order.
func shuffled(p Problem, r *rand.Rand) Problem {
	q := p
	q.Pools, q.Nodes, q.Pods, q.Daemons = slices.Clone(p.Pools), slices.Clone(p.Nodes), slices.Clone(p.Pods), slices.Clone(p.Daemons)
	types := slices.Clone(p.Pools[0].Types)
	for i := range types {
		types[i].Offerings = slices.Clone(types[i].Offerings)
		r.Shuffle(len(types[i].Offerings), func(a, b int) {
			o := types[i].Offerings
			o[a], o[b] = o[b], o[a]
		})
	}
	r.Shuffle(len(types), func(a, b int) { types[a], types[b] = types[b], types[a] })
	for i := range q.Pools {
		q.Pools[i].Types = types
	}
	r.Shuffle(len(q.Pools), func(a, b int) { q.Pools[a], q.Pools[b] = q.Pools[b], q.Pools[a] })
	r.Shuffle(len(q.Nodes), func(a, b int) { q.Nodes[a], q.Nodes[b] = q.Nodes[b], q.Nodes[a] })
	r.Shuffle(len(q.Pods), func(a, b int) { q.Pods[a], q.Pods[b] = q.Pods[b], q.Pods[a] })
	r.Shuffle(len(q.Daemons), func(a, b int) { q.Daemons[a], q.Daemons[b] = q.Daemons[b], q.Daemons[a] })
	// A copy of the spec must count as the same spec.
	for i := range q.Pods {
		s := *q.Pods[i].Spec
		q.Pods[i].Spec = &s
	}
	return q
}

var allFeatures = features{labels: true, taints: true, limits: true, daemons: true, nodes: true, topology: true, affinity: true, preferences: true, ports: true, volumes: true, reserved: true, minValues: true, custom: true, pods: 14, types: 5}

func TestRandomProblems(t *testing.T) {
	base := features{pods: 12, types: 5}
	for name, test := range map[string]struct {
		why string
		f   features
	}{
		"resources":   {"nothing but sizes and prices", base},
		"labels":      {"requirements with every operator", features{labels: true, taints: true, custom: true, pods: 12, types: 5}},
		"limits":      {"limits, minValues and reservations", features{limits: true, minValues: true, reserved: true, nodes: true, pods: 12, types: 5}},
		"daemons":     {"daemons, ports and volumes", features{labels: true, daemons: true, ports: true, volumes: true, nodes: true, pods: 12, types: 5}},
		"spread":      {"topology spread", features{labels: true, taints: true, nodes: true, topology: true, pods: 14, types: 4}},
		"affinity":    {"pod affinity and anti-affinity", features{nodes: true, affinity: true, pods: 14, types: 4}},
		"preferences": {"preferences under every policy", features{labels: true, nodes: true, topology: true, affinity: true, preferences: true, pods: 12, types: 4}},
		"all":         {"everything at once", allFeatures},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 60 * cases(t) {
				r := rand.New(rand.NewPCG(seed, 1))
				p := randomProblem(r, test.f)
				// In every other problem some pools have policies of their own.
				for i := range p.Pools {
					if own := Policy(r.IntN(4)); test.f.preferences && seed%2 == 1 && own <= Ignore {
						p.Pools[i].Preferences = &own
					}
				}
				for _, policy := range []Policy{Priced, Respect, Ignore} {
					o := Options{Preferences: policy, Work: 4}
					plan, err := Solve(p, o)
					if err != nil {
						t.Fatal(err)
					}
					if err := verify(p, plan, r); err != nil {
						t.Fatalf("seed %d, policy %d: %v", seed, policy, err)
					}
					again, err := Solve(shuffled(p, r), o)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(plan, again); diff != "" {
						t.Fatalf("seed %d, policy %d: the order of the input changes the plan:\n%s", seed, policy, diff)
					}
				}
			}
		})
	}
}
