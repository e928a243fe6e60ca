package ec2sim

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
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
	low, high := float64(p.SpotMin), float64(p.SpotMax)
	level := low + (high-low)*s.fraction("level", typeName, z.id)
	step := at.UnixNano() / int64(spotStep)
	price := level * (1 + 0.06*s.wander(step, typeName, z.id))
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

// wander is a smooth random walk in [-1,1]: three waves whose periods (about 5,
// 17 and 61 hours) share no multiple and whose phases belong to the pool.
func (s *Server) wander(step int64, names ...string) float64 {
	sum := 0.0
	for i, period := range []float64{31, 103, 367} {
		phase := s.fraction(append(names, fmt.Sprint("phase", i))...)
		sum += math.Sin(2 * math.Pi * (float64(step)/period + phase))
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

type spotRecord struct {
	typeName, product string
	zone              zone
	micro             int64
	at                time.Time
}

// spotProducts are the descriptions under which Linux prices are listed.
func spotProducts() []string { return []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"} }

// describeSpotPriceHistory lists, for each type and zone, the price in force at
// StartTime and every change up to EndTime, the newest first.
func (s *Server) describeSpotPriceHistory(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	now := s.clock.Now()
	start, err := c.p.time("StartTime")
	if err != nil {
		return err
	}
	end, err := c.p.time("EndTime")
	if err != nil {
		return err
	}
	if end.IsZero() || end.After(now) {
		end = now
	}
	// History reaches back 90 days, and by default all of it is meant; one day
	// is as much as a page can usefully hold here.
	if start.IsZero() {
		start = end.Add(-24 * time.Hour)
	}
	if oldest := now.AddDate(0, 0, -90); start.Before(oldest) {
		start = oldest
	}
	if start.After(end) {
		start = end
	}
	products := c.p.strs("ProductDescription")
	if len(products) == 0 {
		products = spotProducts()
	}
	names := c.p.strs("InstanceType")
	zoneName := c.p.str("AvailabilityZone")
	filters := parseFilters(c.p)
	var found []spotRecord
	for _, t := range s.cat.Types() {
		if len(names) > 0 && !slices.Contains(names, t.Name) {
			continue
		}
		for _, z := range s.net.zones {
			if zoneName != "" && zoneName != z.name || !s.soldIn(t.Name, z) {
				continue
			}
			for _, product := range spotProducts() {
				if slices.Contains(products, product) {
					found = append(found, s.history(t.Name, z, product, start, end)...)
				}
			}
		}
	}
	kept := found[:0]
	for _, r := range found {
		ok, err := passes(filters, nil, func(name string) ([]string, bool) {
			switch name {
			case "availability-zone":
				return []string{r.zone.name}, true
			case "instance-type":
				return []string{r.typeName}, true
			case "product-description":
				return []string{r.product}, true
			case "spot-price":
				return []string{formatUSD(r.micro)}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		if ok {
			kept = append(kept, r)
		}
	}
	shown, next, err := page(c.p, kept, spotRecord.key, 1, 10000)
	if err != nil {
		return err
	}
	c.x.in("spotPriceHistorySet", func() {
		each(&c.x, "item", shown, func(r spotRecord) {
			c.x.str("instanceType", r.typeName)
			c.x.str("productDescription", r.product)
			c.x.str("spotPrice", formatUSD(r.micro))
			c.x.time("timestamp", r.at)
			c.x.str("availabilityZone", r.zone.name)
			c.x.str("availabilityZoneId", r.zone.id)
		})
	})
	// EC2 sends an empty token on the last page of this list.
	c.x.str("nextToken", next)
	return nil
}

// key orders records by type, zone and product, then from new to old.
func (r spotRecord) key() string {
	return fmt.Sprintf("%s %s %s %019d", r.typeName, r.zone.name, r.product, math.MaxInt64-r.at.UnixNano())
}

// history returns the price at start, dated when it began as far as an hour
// back, and the changes until end.
func (s *Server) history(typeName string, z zone, product string, start, end time.Time) []spotRecord {
	price := s.spotPrice(typeName, z, start)
	if price == 0 {
		return nil
	}
	began := start.Truncate(spotStep)
	for i := 0; i < 6 && s.spotPrice(typeName, z, began.Add(-time.Nanosecond)) == price; i++ {
		began = began.Add(-spotStep)
	}
	records := []spotRecord{{typeName, product, z, price, began}}
	for t := start.Truncate(spotStep).Add(spotStep); !t.After(end); t = t.Add(spotStep) {
		if now := s.spotPrice(typeName, z, t); now != price {
			price = now
			records = append(records, spotRecord{typeName, product, z, price, t})
		}
	}
	// A move in the middle of a step shows from its own time on.
	for _, m := range s.moves {
		if m.from.After(start) && !m.from.After(end) && m.match.is(typeName, z, Spot) {
			records = append(records, spotRecord{typeName, product, z, s.spotPrice(typeName, z, m.from), m.from})
		}
	}
	slices.SortStableFunc(records, func(a, b spotRecord) int { return strings.Compare(a.key(), b.key()) })
	return slices.CompactFunc(records, func(a, b spotRecord) bool { return a.at.Equal(b.at) })
}

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
