package ec2sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Scenario is what happens to the simulated world, and when. Its file is YAML or
// JSON:
//
//	steps:
//	- at: 30s
//	  for: 10m
//	  shortage: {match: {types: ["c7*.xlarge"], zones: [us-west-2a]}, left: 0}
//	- at: 2m
//	  prices: {match: {capacityTypes: [spot]}, factor: 1.5}
//	- at: 5m
//	  interrupt: {match: {zones: [us-west-2b]}, count: 3}
type Scenario struct {
	Steps []Step `json:"steps"`
}

// Step is one change. Exactly one of its pointers is set.
type Step struct {
	// At is when it happens, from the start of the scenario.
	At Duration `json:"at,omitempty"`
	// For is how long it lasts; zero is for good. Interruptions, terminations
	// and notices are over at once and take none.
	For Duration `json:"for,omitempty"`

	// Shortage leaves the matching capacity pools room for so many instances in
	// all.
	Shortage *Shortage `json:"shortage,omitempty"`
	// Prices multiplies matching spot prices.
	Prices *PriceChange `json:"prices,omitempty"`
	// Outage takes zones down: nothing launches there and what runs there ends.
	Outage *Outage `json:"outage,omitempty"`
	// Boot delays or spoils the boots of matching instances.
	Boot *BootFault `json:"boot,omitempty"`
	// Calls slows or fails API calls.
	Calls *CallFault `json:"calls,omitempty"`

	// Release publishes new Amazon Linux 2023 images, which become the
	// recommended ones. It is for good.
	Release *Release `json:"release,omitempty"`

	// Interrupt takes spot instances back, with two minutes' notice.
	Interrupt *Victims `json:"interrupt,omitempty"`
	// Rebalance recommends to move away from spot instances.
	Rebalance *Victims `json:"rebalance,omitempty"`
	// Reclaim takes instances in capacity reservations back, with two minutes' notice, as
	// the owner of an interruptible reservation does.
	Reclaim *Victims `json:"reclaim,omitempty"`
	// Retire schedules the retirement of instances.
	Retire *Victims `json:"retire,omitempty"`
	// Terminate ends instances without notice, as broken hardware does.
	Terminate *Victims `json:"terminate,omitempty"`
	// Impair fails the status checks of running instances.
	Impair *Victims `json:"impair,omitempty"`
}

// Shortage is how much the matching pools hold, running instances included.
type Shortage struct {
	Match Match `json:"match"`
	Left  int   `json:"left"`
}

// PriceChange multiplies the spot prices of the matching pools.
type PriceChange struct {
	Match  Match   `json:"match"`
	Factor float64 `json:"factor"`
}

// Outage names zones by name or ID.
type Outage struct {
	Zones []string `json:"zones"`
}

// BootFault says how matching instances boot while it lasts.
type BootFault struct {
	Match Match `json:"match"`
	// Delay is added to every boot.
	Delay Duration `json:"delay,omitempty"`
	// Fail is the fraction of instances that EC2 gives up on: they end without
	// having run.
	Fail float64 `json:"fail,omitempty"`
	// Hang is the fraction of instances that run but never become a node.
	Hang float64 `json:"hang,omitempty"`
}

// CallFault says what happens to matching API calls while it lasts.
type CallFault struct {
	// Actions are service and action, as in ec2:CreateFleet; a pattern like
	// ec2:Describe* is fine. Empty means every call.
	Actions []string `json:"actions,omitempty"`
	// Delay is added to each.
	Delay Duration `json:"delay,omitempty"`
	// Code is the error to answer with, after the delay; empty for none.
	Code string `json:"code,omitempty"`
	// Fraction of the calls that are hit; zero is all of them.
	Fraction float64 `json:"fraction,omitempty"`
	// Count is after how many hits it is over; zero is never.
	Count int `json:"count,omitempty"`
}

// Release is a new release of the EKS images.
type Release struct {
	// Date names it, as in 20261203.
	Date string `json:"date"`
}

// Victims chooses live instances: those with the IDs, or those that match.
type Victims struct {
	IDs   []string `json:"ids,omitempty"`
	Match Match    `json:"match"`
	// Count is how many of the matching ones; zero is all of them. The seed
	// decides which.
	Count int `json:"count,omitempty"`
}

// Duration is a time.Duration that is written as in 1m30s.
type Duration time.Duration

// UnmarshalJSON reads a string like 1m30s.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("duration %s: write it as in \"1m30s\"", data)
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("duration %q: %w", text, err)
	}
	*d = Duration(v)
	return nil
}

// MarshalJSON writes a string like 1m30s.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// ParseScenario reads a scenario file. Unknown fields are errors.
func ParseScenario(data []byte) (Scenario, error) {
	var sc Scenario
	if err := yaml.UnmarshalStrict(data, &sc); err != nil {
		return Scenario{}, fmt.Errorf("parse scenario: %w", err)
	}
	for n, step := range sc.Steps {
		if err := step.validate(); err != nil {
			return Scenario{}, fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	return sc, nil
}

func (st Step) validate() error {
	set := 0
	for _, on := range []bool{
		st.Shortage != nil, st.Prices != nil, st.Outage != nil, st.Boot != nil, st.Calls != nil, st.Release != nil,
		st.Interrupt != nil, st.Rebalance != nil, st.Reclaim != nil, st.Retire != nil, st.Terminate != nil, st.Impair != nil,
	} {
		if on {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("a step does exactly one thing, not %d", set)
	case st.At < 0 || st.For < 0:
		return fmt.Errorf("at and for may not be negative")
	case st.Prices != nil && st.Prices.Factor <= 0:
		return fmt.Errorf("prices: factor %v must be above zero", st.Prices.Factor)
	case st.Shortage != nil && st.Shortage.Left < 0:
		return fmt.Errorf("shortage: left %d may not be negative", st.Shortage.Left)
	case st.Outage != nil && len(st.Outage.Zones) == 0:
		return fmt.Errorf("outage: name the zones")
	case st.Boot != nil && (st.Boot.Fail < 0 || st.Boot.Hang < 0 || st.Boot.Fail+st.Boot.Hang > 1):
		return fmt.Errorf("boot: fail and hang are fractions that together are at most 1")
	case st.Calls != nil && (st.Calls.Fraction < 0 || st.Calls.Fraction > 1):
		return fmt.Errorf("calls: fraction %v must be between 0 and 1", st.Calls.Fraction)
	}
	if st.Release != nil {
		if _, err := time.Parse("20060102", st.Release.Date); err != nil {
			return fmt.Errorf("release: date %q: write it as in 20261203", st.Release.Date)
		}
	}
	for _, m := range st.matches() {
		if err := m.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (st Step) matches() []Match {
	var all []Match
	for _, v := range []*Victims{st.Interrupt, st.Rebalance, st.Reclaim, st.Retire, st.Terminate, st.Impair} {
		if v != nil {
			all = append(all, v.Match)
		}
	}
	switch {
	case st.Shortage != nil:
		all = append(all, st.Shortage.Match)
	case st.Prices != nil:
		all = append(all, st.Prices.Match)
	case st.Boot != nil:
		all = append(all, st.Boot.Match)
	}
	return all
}

// Play schedules a scenario's steps, counted from now.
func (s *Server) Play(sc Scenario) error {
	for n, step := range sc.Steps {
		if err := s.check(step); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range sc.Steps {
		s.after(time.Duration(step.At), func() { s.do(step) })
	}
	return nil
}

// check is validate, and that the zones named are the simulator's.
func (s *Server) check(step Step) error {
	if err := step.validate(); err != nil {
		return err
	}
	var names []string
	for _, m := range step.matches() {
		names = append(names, m.Zones...)
	}
	if step.Outage != nil {
		names = append(names, step.Outage.Zones...)
	}
	for _, name := range names {
		if _, ok := s.net.zone(name); !ok {
			var known []string
			for _, z := range s.net.zones {
				known = append(known, z.name)
			}
			return fmt.Errorf("zone %q: use one of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// do carries out a step now and returns the IDs of the instances it hit.
func (s *Server) do(step Step) []string {
	now := s.clock.Now()
	var until time.Time
	if step.For > 0 {
		until = now.Add(time.Duration(step.For))
	}
	switch {
	case step.Shortage != nil:
		s.shortages = append(s.shortages, shortage{step.Shortage.Match, step.Shortage.Left, now, until})
	case step.Prices != nil:
		s.moves = append(s.moves, priceMove{step.Prices.Match, step.Prices.Factor, now, until})
	case step.Outage != nil:
		return s.outage(*step.Outage, until)
	case step.Boot != nil:
		s.boots = append(s.boots, &bootFault{*step.Boot, until})
	case step.Calls != nil:
		s.faults = append(s.faults, &fault{CallFault: *step.Calls, until: until, left: step.Calls.Count})
	case step.Release != nil:
		for minor := oldestMinor; minor <= newestMinor; minor++ {
			s.publishLinux2023(fmt.Sprintf("1.%d", minor), step.Release.Date)
		}
	case step.Interrupt != nil:
		return s.each(*step.Interrupt, s.interrupt)
	case step.Rebalance != nil:
		return s.each(*step.Rebalance, s.rebalance)
	case step.Reclaim != nil:
		return s.each(*step.Reclaim, s.reclaim)
	case step.Retire != nil:
		return s.each(*step.Retire, s.retire)
	case step.Terminate != nil:
		return s.each(*step.Terminate, func(i *instance) bool {
			live := i.live()
			s.terminate(i, "Server.InternalError")
			return live
		})
	case step.Impair != nil:
		ids := s.each(*step.Impair, func(i *instance) bool { return s.impair(i, "instance") })
		if step.For > 0 {
			s.after(time.Duration(step.For), func() {
				for _, id := range ids {
					if i := s.instances[id]; i != nil {
						s.impair(i, "")
					}
				}
			})
		}
		return ids
	}
	return nil
}

// each does something to the victims and returns the IDs of those it was done to.
func (s *Server) each(v Victims, do func(*instance) bool) []string {
	var candidates []*instance
	for _, id := range s.order {
		i := s.instances[id]
		named := slices.Contains(v.IDs, id)
		if len(v.IDs) > 0 && !named || !i.live() || !v.Match.is(i.typ.Name, i.subnet.zone, i.capacityType) {
			continue
		}
		candidates = append(candidates, i)
	}
	if v.Count > 0 && v.Count < len(candidates) {
		s.rng.Shuffle(len(candidates), func(a, b int) { candidates[a], candidates[b] = candidates[b], candidates[a] })
	}
	hit := []string{}
	for _, i := range candidates {
		if v.Count > 0 && len(hit) == v.Count {
			break
		}
		if do(i) {
			hit = append(hit, i.id)
		}
	}
	return hit
}

func (s *Server) outage(o Outage, until time.Time) []string {
	var down []string
	for _, name := range o.Zones {
		if z, ok := s.net.zone(name); ok {
			s.outages[z.name] = until
			down = append(down, z.name)
		}
	}
	if len(down) == 0 {
		return nil
	}
	return s.each(Victims{Match: Match{Zones: down}}, func(i *instance) bool {
		s.terminate(i, "Server.InternalError")
		return true
	})
}
