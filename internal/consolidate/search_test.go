package consolidate

import (
	order "cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/pack"
)

const gib = 1 << 30

// linearTypes are powers of two of vCPU up to most at 2, 4 and 8 GiB a vCPU, on
// demand in four zones, as in the end-to-end comparison.
func linearTypes(most int64) []pack.InstanceType {
	var out []pack.InstanceType
	for v := int64(1); v <= most; v *= 2 {
		for _, ratio := range []int64{2, 4, 8} {
			memory := v * ratio * gib
			t := pack.InstanceType{
				Name:        fmt.Sprintf("%d-%d", ratio, v),
				Labels:      map[string]string{"kubernetes.io/arch": "amd64"},
				Capacity:    pack.Resources{pack.CPU: 1000 * v, pack.Memory: memory, pack.Pods: min(110, 16*v)},
				Allocatable: pack.Resources{pack.CPU: 1000*v - 100, pack.Memory: memory - 120<<20, pack.Pods: min(110, 16*v)},
			}
			for _, z := range []string{"z1", "z2", "z3", "z4"} {
				t.Offerings = append(t.Offerings, pack.Offering{CapacityType: pack.OnDemand, Zone: z, MicroUSD: v*25_000 + v*ratio*gib/1_000_000, Available: true})
			}
			out = append(out, t)
		}
	}
	return out
}

// fleet places n pods of five sizes, then takes away a random share of them.
func fleet(t testing.TB, n int, types []pack.InstanceType, gone float64, r *rand.Rand) (*pack.State, []pack.Pod) {
	t.Helper()
	shapes := []pack.Resources{
		{pack.CPU: 100, pack.Memory: gib / 8}, {pack.CPU: 500, pack.Memory: gib}, {pack.CPU: 1000, pack.Memory: 2 * gib},
		{pack.CPU: 2000, pack.Memory: 8 * gib}, {pack.CPU: 4000, pack.Memory: 16 * gib},
	}
	var specs []*pack.PodSpec
	for _, s := range shapes {
		specs = append(specs, &pack.PodSpec{Requests: s})
	}
	p := pack.Problem{Pools: []pack.Pool{{Name: "default", Types: types}}, WellKnown: []string{pack.LabelZone, pack.LabelCapacityType, pack.LabelInstanceType}}
	for i := range n {
		p.Pods = append(p.Pods, pack.Pod{Name: fmt.Sprintf("d/p%05d", i), Namespace: "d", Spec: specs[i%5]})
	}
	plan, err := pack.Solve(p, pack.Options{})
	if err != nil || len(plan.Unschedulable) > 0 {
		t.Fatal(err, plan.Unschedulable)
	}
	byName := map[string]*pack.InstanceType{}
	for i := range types {
		byName[types[i].Name] = &types[i]
	}
	place := map[string]string{}
	for i, nn := range plan.NewNodes {
		ty := byName[nn.Options[0].Type]
		name := fmt.Sprintf("n%04d", i)
		p.Nodes = append(p.Nodes, pack.Node{
			Name: name, Pool: nn.Pool, Initialized: true, Capacity: ty.Capacity, Allocatable: ty.Allocatable, MicroUSD: nn.MicroUSD,
			Labels: map[string]string{pack.LabelPool: nn.Pool, pack.LabelZone: nn.Options[0].Offerings[0].Zone, pack.LabelCapacityType: pack.OnDemand, pack.LabelInstanceType: ty.Name},
		})
		for _, pod := range nn.Pods {
			place[pod] = name
		}
	}
	var kept []pack.Pod
	for _, i := range r.Perm(n)[int(float64(n)*gone):] {
		pod := p.Pods[i]
		pod.Node = place[pod.Name]
		kept = append(kept, pod)
	}
	p.Pods = kept
	s, err := pack.NewState(p)
	if err != nil {
		t.Fatal(err)
	}
	return s, kept
}

func problem(s *pack.State, nodes int) Problem {
	p := Problem{Pools: map[string]Pool{"default": {Budget: math.MaxInt}}}
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		if _, ok := s.Node(name); ok {
			p.Nodes = append(p.Nodes, Node{Name: name, Cost: 1000 * int64(len(s.PodsOn(name)))})
		}
	}
	return p
}

// TestScaleDown is the comparison's case: of 500 pods on well packed nodes a random
// 60 % leave. One search alone comes close to the lower bound.
func TestScaleDown(t *testing.T) {
	for seed := range uint64(10) {
		s, _ := fleet(t, 500, linearTypes(16), 0.6, rand.New(rand.NewPCG(seed, 1)))
		p := problem(s, 500)
		var all []string
		for _, n := range p.Nodes {
			all = append(all, n.Name)
		}
		ideal := s.WhatIf(pack.Change{Without: all}, pack.Options{})
		got := search(s, p)
		moves := 0
		for _, c := range got.Commands {
			moves += c.Moves
		}
		over := float64(got.After) / float64(ideal.LowerBound)
		t.Logf("seed %d: %d moves, %.2f to %.2f $/h, %.3f of the lower bound", seed, moves, float64(got.Before)/1e6, float64(got.After)/1e6, over)
		if over > 1.08 || moves > 136 {
			t.Errorf("seed %d: %.3f of the lower bound with %d pods moved, want at most 1.08 with 136", seed, over, moves)
		}
	}
}

func search(s *pack.State, p Problem) Result {
	trial := Begin(s, nil, pack.Options{})
	defer trial.Undo()
	return trial.Search(p)
}

// world is a fleet in which commands are carried out.
type world struct {
	t     *testing.T
	s     *pack.State
	r     *rand.Rand
	types map[string]*pack.InstanceType
	nodes map[string]bool
	next  int
	// moved counts each pod's moves.
	moved map[string]int
}

func newWorld(t *testing.T, r *rand.Rand, types []pack.InstanceType, pods []pack.Pod) *world {
	w := &world{t: t, r: r, types: map[string]*pack.InstanceType{}, nodes: map[string]bool{}, moved: map[string]int{}}
	for i := range types {
		w.types[types[i].Name] = &types[i]
	}
	var err error
	if w.s, err = pack.NewState(pack.Problem{
		Pools: []pack.Pool{{Name: "default", Types: types}}, Pods: pods,
		WellKnown: []string{pack.LabelZone, pack.LabelCapacityType, pack.LabelInstanceType, pack.LabelHostname},
	}); err != nil {
		t.Fatal(err)
	}
	w.schedule()
	return w
}

// open adds a node as one of its options, any of them.
func (w *world) open(n pack.NewNode) string {
	o := n.Options[w.r.IntN(len(n.Options))]
	f := o.Offerings[w.r.IntN(len(o.Offerings))]
	ty := w.types[o.Type]
	w.next++
	name := fmt.Sprintf("w%04d", w.next)
	w.s.SetNode(pack.Node{
		Name: name, Pool: n.Pool, Initialized: true, Capacity: ty.Capacity, Allocatable: ty.Allocatable, MicroUSD: f.MicroUSD,
		Labels: map[string]string{
			pack.LabelPool: n.Pool, pack.LabelZone: f.Zone, pack.LabelCapacityType: f.CapacityType,
			pack.LabelInstanceType: ty.Name, pack.LabelHostname: name, "kubernetes.io/arch": "amd64",
		},
	})
	w.nodes[name] = true
	return name
}

// schedule gives every pending pod a place, on new nodes if need be.
func (w *world) schedule() {
	plan := w.s.Solve(pack.Options{})
	if len(plan.Unschedulable) > 0 {
		w.t.Fatalf("pod %s has no place: %+v", plan.Unschedulable[0].Pod, plan.Unschedulable[0].Reasons)
	}
	where := map[string]string{}
	for _, a := range plan.Assignments {
		where[a.Pod] = a.Node
	}
	for _, n := range plan.NewNodes {
		name := w.open(n)
		for _, pod := range n.Pods {
			where[pod] = name
		}
	}
	for _, pod := range w.s.Pending() {
		pod.Node = where[pod.Name]
		w.set(pod)
	}
}

func (w *world) set(pod pack.Pod) {
	if err := w.s.SetPod(pod); err != nil {
		w.t.Fatal(err)
	}
}

// run carries out commands all at once: new nodes come, pods are evicted, the largest
// first and otherwise in any order, and a scheduler binds each to the node that has most
// left.
func (w *world) run(commands []Command) {
	var evicted []pack.Pod
	for _, c := range commands {
		for _, n := range c.New {
			w.open(n)
		}
		for _, name := range c.Remove {
			evicted = append(evicted, w.s.PodsOn(name)...)
			delete(w.nodes, name)
		}
	}
	for _, pod := range evicted {
		w.moved[pod.Name]++
		pod.Node = ""
		w.set(pod)
	}
	for _, c := range commands {
		for _, name := range c.Remove {
			w.s.RemoveNode(name)
		}
	}
	w.r.Shuffle(len(evicted), func(i, j int) { evicted[i], evicted[j] = evicted[j], evicted[i] })
	slices.SortStableFunc(evicted, func(a, b pack.Pod) int { return order.Compare(bulk(b), bulk(a)) })
	for _, pod := range evicted {
		for _, name := range w.roomiest() {
			if w.fits(pod, name) {
				pod.Node = name
				w.set(pod)
				break
			}
		}
	}
}

// bulk is a pod's size as drains see it.
func bulk(p pack.Pod) int {
	return bits.Len64(uint64(p.Spec.Requests[pack.CPU] + p.Spec.Requests[pack.Memory]*1000>>32))
}

func (w *world) roomiest() []string {
	free := map[string]float64{}
	for name := range w.nodes {
		n, _ := w.s.Node(name)
		var cpu, memory int64
		for _, p := range w.s.PodsOn(name) {
			cpu += p.Spec.Requests[pack.CPU]
			memory += p.Spec.Requests[pack.Memory]
		}
		free[name] = 2 - float64(cpu)/float64(n.Allocatable[pack.CPU]) - float64(memory)/float64(n.Allocatable[pack.Memory])
	}
	return slices.SortedFunc(maps.Keys(w.nodes), func(a, b string) int { return order.Or(order.Compare(free[b], free[a]), order.Compare(a, b)) })
}

func (w *world) fits(pod pack.Pod, node string) bool {
	var others []string
	for name := range w.nodes {
		if name != node {
			others = append(others, name)
		}
	}
	plan := w.s.WhatIf(pack.Change{Pods: []pack.Pod{pod}, Closed: others, OnlyMoved: true}, pack.Options{Work: -1})
	return len(plan.Assignments) == 1
}

func (w *world) problem(budget int) Problem {
	p := Problem{Pools: map[string]Pool{"default": {Budget: budget}}}
	for name := range w.nodes {
		p.Nodes = append(p.Nodes, Node{Name: name, Cost: 1000 * int64(len(w.s.PodsOn(name)))})
	}
	return p
}

func (w *world) price() int64 {
	var sum int64
	for name := range w.nodes {
		n, _ := w.s.Node(name)
		sum += n.MicroUSD
	}
	return sum
}

// dump is everything that a state holds about nodes and pods.
func (w *world) dump() map[string][]pack.Pod {
	out := map[string][]pack.Pod{"": w.s.Pending()}
	for name := range w.nodes {
		n, _ := w.s.Node(name)
		out[fmt.Sprintf("%s %d %v", n.Name, n.MicroUSD, n.Labels)] = w.s.PodsOn(name)
	}
	return out
}

func randomPods(r *rand.Rand, n int) []pack.Pod {
	var out []pack.Pod
	for app := range 1 + n/10 {
		labels := map[string]string{"app": fmt.Sprint(app)}
		spec := &pack.PodSpec{Requests: pack.Resources{pack.CPU: 50 * (1 + r.Int64N(80)), pack.Memory: (1 + r.Int64N(64)) << 27}}
		self := pack.Selector{Requirements: []pack.Requirement{{Key: "app", Operator: pack.In, Values: []string{labels["app"]}}}}
		switch r.IntN(5) {
		case 0:
			spec.Spread = []pack.Spread{{TopologyKey: pack.LabelZone, MaxSkew: 1, Selector: self}}
		case 1:
			spec.PodAntiAffinity = []pack.PodTerm{{TopologyKey: pack.LabelHostname, Selector: self}}
		case 2:
			spec.NodeSelector = []pack.Requirement{{Key: pack.LabelZone, Operator: pack.In, Values: []string{"z1"}}}
		}
		for i := range 1 + r.IntN(19) {
			out = append(out, pack.Pod{Name: fmt.Sprintf("d/%d-%d", app, i), Namespace: "d", Labels: labels, Spec: spec})
		}
	}
	return out
}

// TestScaleDownForReal carries the comparison's case out until it is quiet, with a
// scheduler that places pods as it likes and launches that take any option. The peer
// ends 1.05 to 1.16 over the lower bound with 86 to 136 pods moved.
func TestScaleDownForReal(t *testing.T) {
	const seeds = 10
	var over, moved float64
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		types := linearTypes(16)
		_, pods := fleet(t, 500, types, 0, r)
		for i := range pods {
			pods[i].Node = ""
		}
		w := newWorld(t, r, types, pods)
		for _, i := range r.Perm(len(pods))[:300] {
			w.s.RemovePod(pods[i].Name)
		}
		before := w.price()
		ideal := w.s.WhatIf(pack.Change{Without: slices.Collect(maps.Keys(w.nodes))}, pack.Options{})
		rounds := 0
		for ; ; rounds++ {
			p := w.problem(math.MaxInt)
			p.Again = rounds
			got := search(w.s, p)
			if len(got.Commands) == 0 {
				break
			}
			if rounds == 10 {
				t.Fatalf("seed %d: still moving after %d rounds", seed, rounds)
			}
			w.run(got.Commands)
			w.schedule()
		}
		moves := 0
		for _, n := range w.moved {
			moves += n
		}
		ratio := float64(w.price()) / float64(ideal.LowerBound)
		t.Logf("seed %d: %d rounds, %d moves, %.2f to %.2f $/h, %.3f of the lower bound", seed, rounds, moves, float64(before)/1e6, float64(w.price())/1e6, ratio)
		over, moved = over+ratio/seeds, moved+float64(moves)/seeds
	}
	t.Logf("on average %.3f of the lower bound with %.0f pods moved", over, moved)
	if over > 1.05 || moved > 140 {
		t.Errorf("%.3f of the lower bound with %.0f pods moved on average, want at most 1.05 with 140", over, moved)
	}
}

// TestQuietFleetComesToRest lets pods leave random fleets and carries out what is
// found, whichever of its options each new node becomes, until nothing is.
func TestQuietFleetComesToRest(t *testing.T) {
	for seed := range uint64(15) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t, r, linearTypes(16), randomPods(r, 30+r.IntN(70)))
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			for _, pod := range w.s.PodsOn(name) {
				if r.IntN(2) == 0 {
					w.s.RemovePod(pod.Name)
				}
			}
		}
		budget := 1 + r.IntN(20)
		first := w.price()
		for rounds := 0; ; rounds++ {
			if rounds == 50 {
				t.Fatalf("seed %d: still moving after %d rounds", seed, rounds)
			}
			dump := w.dump()
			got := search(w.s, w.problem(budget))
			if diff := cmp.Diff(dump, w.dump()); diff != "" {
				t.Fatalf("seed %d: the search altered the state: %s", seed, diff)
			}
			if again := search(w.s, w.problem(budget)); !cmp.Equal(got, again) {
				t.Fatalf("seed %d: the same fleet gave two answers:\n%s", seed, cmp.Diff(got, again))
			}
			removed := 0
			for _, c := range got.Commands {
				removed += len(c.Remove)
				if c.Saves <= 0 {
					t.Fatalf("seed %d: a command that saves %d", seed, c.Saves)
				}
			}
			if removed > budget {
				t.Fatalf("seed %d: %d nodes for a budget of %d", seed, removed, budget)
			}
			if len(got.Commands) == 0 {
				break
			}
			w.run(got.Commands)
			w.schedule()
		}
		if w.price() > first {
			t.Errorf("seed %d: the fleet came out dearer: %d, from %d", seed, w.price(), first)
		}
	}
}

func TestSpotForSpot(t *testing.T) {
	types := func(n int) []pack.Option {
		var out []pack.Option
		for i := range n {
			out = append(out, pack.Option{Type: fmt.Sprintf("t%02d", i), Offerings: []pack.Offering{{CapacityType: pack.Spot, Zone: "z1", MicroUSD: int64(1000 + i), Available: true}}})
		}
		return out
	}
	spot, onDemand := candidate{spot: true}, candidate{}
	tests := map[string]struct {
		why     string
		removed []candidate
		options int
		allowed bool
		want    int // options left, 0 for refused
	}{
		"on-demand to spot":      {"no rule", []candidate{onDemand}, 1, false, 1},
		"gate off":               {"Karpenter's default", []candidate{spot}, 40, false, 0},
		"too few types":          {"the next interruption would be near", []candidate{spot}, 14, true, 0},
		"enough types":           {"and no more than needed are kept, so that it can't go on for ever", []candidate{spot}, 40, true, 15},
		"several for one":        {"each such step makes the fleet smaller", []candidate{spot, spot}, 3, true, 3},
		"one of several is spot": {"the gate counts all the same", []candidate{onDemand, spot}, 3, false, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			nodes, ok := spotForSpot(tc.removed, []pack.NewNode{{MicroUSD: 1000, Options: types(tc.options)}}, tc.allowed)
			if got := len(nodes); ok != (tc.want > 0) || ok && (got != 1 || len(nodes[0].Options) != tc.want) {
				t.Errorf("spotForSpot() = %+v, %v; want %d options (%s)", nodes, ok, tc.want, tc.why)
			}
		})
	}
}

func TestNarrow(t *testing.T) {
	offer := func(capacityType, zone string, price int64) pack.Offering {
		return pack.Offering{CapacityType: capacityType, Zone: zone, MicroUSD: price, Available: true}
	}
	n := pack.NewNode{
		MicroUSD: 100,
		Requirements: []pack.Requirement{
			{Key: pack.LabelCapacityType, Operator: pack.In, Values: []string{pack.OnDemand, pack.Spot}},
			{Key: pack.LabelInstanceType, Operator: pack.In, Values: []string{"a", "b", "c"}},
		},
		Options: []pack.Option{
			{Type: "a", Offerings: []pack.Offering{offer(pack.Spot, "z1", 100), offer(pack.Spot, "z2", 110), offer(pack.OnDemand, "z1", 300)}},
			{Type: "b", Offerings: []pack.Offering{offer(pack.Spot, "z1", 105), offer(pack.Spot, "z2", 190)}},
			{Type: "c", Offerings: []pack.Offering{offer(pack.OnDemand, "z1", 110)}},
		},
	}
	got, ok := narrow([]pack.NewNode{n}, 20)
	want := []pack.Requirement{
		{Key: pack.LabelCapacityType, Operator: pack.In, Values: []string{pack.Spot}},
		{Key: pack.LabelInstanceType, Operator: pack.In, Values: []string{"a"}},
	}
	if !ok || !cmp.Equal(got[0].Requirements, want) {
		t.Errorf("a launch may cost more than allowed:\n%s", cmp.Diff(want, got[0].Requirements))
	}
	got, ok = narrow([]pack.NewNode{n}, 5)
	want = []pack.Requirement{
		{Key: pack.LabelCapacityType, Operator: pack.In, Values: []string{pack.Spot}},
		{Key: pack.LabelInstanceType, Operator: pack.In, Values: []string{"a", "b"}},
		{Key: pack.LabelZone, Operator: pack.In, Values: []string{"z1"}},
	}
	if !ok || !cmp.Equal(got[0].Requirements, want) {
		t.Errorf("where only one zone is cheap enough, it must be asked for:\n%s", cmp.Diff(want, got[0].Requirements))
	}
	if n.Requirements[1].Values[0] != "a" || len(n.Options) != 3 {
		t.Error("the node handed in was changed")
	}
}
