package ec2sim

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"time"
)

// spotStep is how often a spot price may change. EC2 adjusts prices gradually,
// on long-term supply and demand; a few changes in an hour is the liveliest that
// its published history shows.
const spotStep = 10 * time.Minute

// priceMove multiplies the spot price of what matches from a time on.
type priceMove struct {
	match  Match
	factor float64
	from   time.Time
	until  time.Time // zero: for good
}

// onDemand returns the price of a type in millionths of a dollar per hour, 0 if
// it isn't sold.
func (s *Server) onDemand(typeName string) int64 {
	p, _ := s.cat.Price(typeName, s.cfg.Region)
	return p.OnDemand
}

// spotPrice returns the spot price of a type in a zone at a time, 0 if there is
// no spot market for it. It depends on the seed and the time alone, and on price
// moves: each zone has a level of its own between the lowest and the highest
// price of the catalogue, and wanders a few percent around it.
func (s *Server) spotPrice(typeName string, z zone, at time.Time) int64 {
	p, ok := s.cat.Price(typeName, s.cfg.Region)
	if !ok || p.Spot == 0 || !s.soldIn(typeName, z) {
		return 0
	}
	walk := s.walk(typeName, z)
	price := (float64(p.SpotMin) + float64(p.SpotMax-p.SpotMin)*walk.level) * (1 + 0.06*walk.at(at.UnixNano()/int64(spotStep)))
	for _, m := range s.moves {
		ends := !m.until.IsZero() && !at.Before(m.until)
		if !at.Before(m.from) && !ends && m.match.is(typeName, z, Spot) {
			price *= m.factor
		}
	}
	// Prices have four decimals of a dollar and are never nothing; nobody bids
	// above the on-demand price, which is the most that EC2 charges.
	micro := max(100, int64(math.Round(price/100))*100)
	if p.OnDemand > 0 {
		micro = min(micro, p.OnDemand)
	}
	return micro
}

// walk is how a pool's spot price moves: its place between the lowest and the
// highest price, and a smooth random walk around that.
type walk struct {
	level  float64
	phases [3]float64
}

// walkPeriods are in steps of spotStep, about 5, 17 and 61 hours. They share no
// factor, so the walk does not repeat within months.
func walkPeriods() [3]float64 { return [3]float64{31, 103, 367} }

func (s *Server) walk(typeName string, z zone) walk {
	key := poolKey{typeName: typeName, zone: z.id}
	w, ok := s.walks[key]
	if !ok {
		w.level = s.fraction("level", typeName, z.id)
		for i := range w.phases {
			w.phases[i] = s.fraction("phase", typeName, z.id, strconv.Itoa(i))
		}
		s.walks[key] = w
	}
	return w
}

// at is the walk at a step, in [-1,1].
func (w walk) at(step int64) float64 {
	sum := 0.0
	for i, period := range walkPeriods() {
		sum += math.Sin(2 * math.Pi * (float64(step)/period + w.phases[i]))
	}
	return sum / 3
}

// price is what an instance of the kind costs now.
func (s *Server) price(typeName string, z zone, capacityType string) int64 {
	if capacityType == Spot {
		return s.spotPrice(typeName, z, s.clock.Now())
	}
	return s.onDemand(typeName)
}

// cost is what an instance has cost up to now in millionths of a dollar. Each
// stretch between two price steps is charged at its first price.
func (s *Server) cost(i *instance) int64 {
	end := s.clock.Now()
	if !i.live() {
		end = i.ended
	}
	total := 0.0
	for at := i.launched; at.Before(end); {
		next := at.Truncate(spotStep).Add(spotStep)
		if i.capacityType == OnDemand || next.After(end) {
			next = end
		}
		price := s.onDemand(i.typ.Name)
		if i.capacityType == Spot {
			price = s.spotPrice(i.typ.Name, i.subnet.zone, at)
		}
		total += float64(price) * next.Sub(at).Hours()
		at = next
	}
	return int64(math.Round(total))
}

// formatUSD writes millionths of a dollar as EC2 writes a spot price.
func formatUSD(micro int64) string { return fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6) }

// Match selects capacity pools. Empty fields match everything; Types are names
// or patterns as in m5.* (path.Match), Zones are zone names or IDs, and
// CapacityTypes are spot and on-demand.
type Match struct {
	Types         []string `json:"types,omitempty"`
	Zones         []string `json:"zones,omitempty"`
	CapacityTypes []string `json:"capacityTypes,omitempty"`
}

func (m Match) is(typeName string, z zone, capacityType string) bool {
	return (len(m.Types) == 0 || slices.ContainsFunc(m.Types, func(pattern string) bool {
		ok, err := path.Match(pattern, typeName)
		return err == nil && ok
	})) &&
		(len(m.Zones) == 0 || slices.Contains(m.Zones, z.name) || slices.Contains(m.Zones, z.id)) &&
		(len(m.CapacityTypes) == 0 || slices.Contains(m.CapacityTypes, capacityType))
}

func (m Match) validate() error {
	for _, pattern := range m.Types {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("instance type pattern %q: %w", pattern, err)
		}
	}
	for _, ct := range m.CapacityTypes {
		if ct != Spot && ct != OnDemand {
			return fmt.Errorf("capacity type %q: use %s or %s", ct, Spot, OnDemand)
		}
	}
	return nil
}
