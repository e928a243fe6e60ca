package compare

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// scenario is one thing that both are asked to do.
type scenario struct {
	name, about string
	pool        poolSpec
	pods        func() []deployment
	// run plays it, once the controller is ready, and fills in the result.
	run func(context.Context, *run) error
	// shrinks says that the scenario is about what is left after pods went: the
	// time until pods are bound is none of its results.
	shrinks bool
	// quiet is how much of the machine others may use before a run counts as
	// disturbed.
	quiet float64
}

// Others may use this much of the machine; consolidation decides by the clock and
// bears less.
const (
	quietEnough = 0.15
	quietShrink = 0.05
)

// proofName is the scenario that compares nothing but checks that the peer works.
const proofName = "proof"

func scenarios(cfg Config) []scenario {
	const cap16 = 16
	up := func(name, about string, maxCPU int, pods func() []deployment) scenario {
		return scenario{
			name: name, about: about, quiet: quietEnough, pods: pods, run: scaleUp,
			pool: poolSpec{maxCPU: maxCPU, policy: "WhenEmpty", after: "Never"},
		}
	}
	all := []scenario{
		up("mixed-100", "100 mixed pods, types of at most 16 vCPU", cap16, func() []deployment { return mixed(100) }),
		up("mixed-500", "500 mixed pods, types of at most 16 vCPU", cap16, func() []deployment { return mixed(500) }),
		up("mixed-2000", "2,000 mixed pods, types of at most 16 vCPU", cap16, func() []deployment { return mixed(2000) }),
		up("full-100", "100 mixed pods, types of any size", 0, func() []deployment { return mixed(100) }),
		up("full-500", "500 mixed pods, types of any size", 0, func() []deployment { return mixed(500) }),
		up("full-2000", "2,000 mixed pods, types of any size", 0, func() []deployment { return mixed(2000) }),
		up("spread-500", "500 mixed pods spread over zones, types of at most 16 vCPU", cap16, func() []deployment {
			return alter(mixed(500), func(d *deployment) { d.zoneSpread = true })
		}),
		up("apart-200", "200 mixed pods, each on a host of its own, types of at most 16 vCPU", cap16, func() []deployment {
			return alter(mixed(200), func(d *deployment) { d.apart = true })
		}),
	}
	ice := up("ice-500", "500 mixed pods, spot or on demand, while the 20 best offerings are empty", cap16, func() []deployment { return mixed(500) })
	ice.pool.spot = true
	ice.run = iceStorm
	down := scenario{
		name: "down-500", about: fmt.Sprintf("500 mixed pods, of which a random 60 %% go; %s of consolidation", cfg.Window),
		pool:  poolSpec{maxCPU: cap16, policy: "WhenEmpty", after: "Never", budget: "100%"},
		quiet: quietShrink, shrinks: true, run: scaleDown(0.4, "0s", cfg.Window),
		pods: func() []deployment { return mixed(500) },
	}
	trough := scenario{
		name: "trough", about: fmt.Sprintf("40 constrained Deployments on spot, scaled to 45 %%; %s of consolidation within default budgets", cfg.Trough),
		pool:  poolSpec{minCPU: 2, maxCPU: 32, spot: true, policy: "WhenEmpty", after: "Never"},
		quiet: quietShrink, shrinks: true, run: scaleDown(0.45, "30s", cfg.Trough),
		pods: func() []deployment { return constrained(40) },
	}
	return append(all, ice, down, trough)
}

// choose returns the scenarios of the names, all of them for none, and whether
// the proof is among them.
func choose(all []scenario, names []string) (chosen []scenario, proof bool, err error) {
	if len(names) == 0 {
		return all, true, nil
	}
	for _, name := range names {
		if name == proofName {
			proof = true
			continue
		}
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if i < 0 {
			known := []string{proofName}
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, false, fmt.Errorf("scenario %q is unknown; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, proof, nil
}

const (
	// bindLimit bounds how long pods may take to be bound. What isn't bound by
	// then is reported.
	bindLimit = 5 * time.Minute
	// calm is how long after the last pod was bound a run goes on, so that late
	// launches count.
	calm = 5 * time.Second
)

// scaleUp creates the pods and waits until they are bound.
func scaleUp(ctx context.Context, r *run) error {
	if err := r.bound(ctx, r.counts()); err != nil {
		return err
	}
	if err := r.create(ctx); err != nil {
		return err
	}
	return r.sleep(ctx, calm)
}

// iceStorm is scaleUp while what would be bought first can't be had.
func iceStorm(ctx context.Context, r *run) error {
	if err := r.emptyBest(ctx, 20); err != nil {
		return err
	}
	return scaleUp(ctx, r)
}

// scaleDown creates the pods, removes all but a share of them, lets the
// controller consolidate, and looks at what is left.
func scaleDown(share float64, after string, window time.Duration) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		if err := r.create(ctx); err != nil {
			return err
		}
		if err := r.sleep(ctx, calm); err != nil {
			return err
		}
		if err := r.initialized(ctx); err != nil {
			return err
		}
		counts := r.remaining(share)
		if err := r.bound(ctx, counts); err != nil {
			return err
		}
		if err := r.choose(ctx, counts); err != nil {
			return err
		}
		if err := r.restart(); err != nil {
			return err
		}
		if err := r.shrink(ctx, counts, after); err != nil {
			return err
		}
		return r.sleep(ctx, window)
	}
}
