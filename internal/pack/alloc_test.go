package pack

import (
	"math/rand/v2"
	"testing"
)

// TestHotPathsAllocateNothing pins what is done once a pod, a node or an event.
func TestHotPathsAllocateNothing(t *testing.T) {
	s, err := NewState(fleet(100, 10, 20, false, endToEndTypes(16), rand.New(rand.NewPCG(1, 1))))
	if err != nil {
		t.Fatal(err)
	}
	pending := append(peerPods(300, rand.New(rand.NewPCG(1, 1))), Pod{Name: "plain", Namespace: "default", Spec: &PodSpec{Requests: Resources{CPU: 300, Memory: gib}}})
	for _, p := range pending {
		if err := s.SetPod(p); err != nil {
			t.Fatal(err)
		}
	}
	s.refresh()
	v := newSolver(s, Options{}.withDefaults(), s.spaceFor(nil), newBitset(len(s.nodes)))
	v.begin(s.pending)
	v.place()
	v.repack()
	event := s.podAt(s.podSlots["pod-0000003"])
	// The kind with the most to check, and one that checks nothing.
	busy, plain := int32(0), int32(0)
	for k := range v.kinds {
		if kd := &v.kinds[k]; len(kd.spreads) > 0 && kd.zonal && (len(v.kinds[busy].spreads) == 0 || len(kd.adds) > len(v.kinds[busy].adds)) {
			busy = int32(k)
		} else if kd.single() {
			plain = int32(k)
		}
	}
	if len(v.bins) == 0 || !v.kinds[plain].single() || len(v.kinds[busy].spreads) == 0 {
		t.Fatal("nothing to measure")
	}
	rewind := func(k int32) {
		for i := range v.kinds[k].cursors {
			v.kinds[k].cursors[i] = cursor{pick: -1}
		}
	}
	v.active = v.active[:0]
	for i := range v.bins {
		v.active = append(v.active, int32(i))
	}
	p := v.packer
	p.begin()
	for k := range v.kinds {
		p.put(int32(k), 0, 1)
	}
	p.merge()
	seed := p.seed()
	entry := v.shortlist(p.lots[seed].breeds).entries[0]
	m := v.newMaster([]need{
		{demand: v.kinds[plain].demand, amount: amounts(v.kinds[plain].demand), breeds: v.kinds[plain].scheme.breeds, count: 10},
		{demand: v.kinds[busy].demand, amount: amounts(v.kinds[busy].demand), breeds: v.kinds[busy].scheme.breeds, count: 10},
	}, unlimited)
	m.dual[0], m.dual[1] = 2, 3
	for name, test := range map[string]struct {
		why string
		run func()
	}{
		"event":     {"a pod goes and comes, as the watch tells", func() { s.RemovePod(event.Name); _ = s.SetPod(event) }},
		"refresh":   {"the order of nodes after an event", func() { s.order.touch(3); s.refresh() }},
		"turns":     {"which zones are open to a pod", func() { v.turns(&v.kinds[busy]) }},
		"peek":      {"the search over nodes and bins, topology asked", func() { rewind(busy); v.peek(busy) }},
		"search":    {"the search over nodes and bins", func() { rewind(plain); v.peek(plain) }},
		"choose":    {"what to open for a pod", func() { rewind(plain); v.choose(&v.kinds[plain]) }},
		"fill":      {"filling a node in every way", func() { p.fill(entry, seed) }},
		"shortlist": {"entries worth trying", func() { v.shortlist(p.lots[seed].breeds) }},
		"knapsack":  {"the most valuable filling", func() { m.sack.solve(&m.offers[0], 1000) }},
		"cost":      {"what it all costs", func() { v.price(); v.near(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			if n := testing.AllocsPerRun(20, test.run); n > 0 {
				t.Errorf("%s: %v allocations", test.why, n)
			}
		})
	}
}
