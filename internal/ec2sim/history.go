package ec2sim

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// spotRecord is a price that a pool had from a time on.
type spotRecord struct {
	typeName, product string
	zone              zone
	micro             int64
	at                time.Time
}

// spotPage is how many records a page has if the caller doesn't say.
const spotPage = 1000

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
	// History reaches back 90 days. Without a start EC2 tells all of it; here it
	// is the last day.
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
	most, err := c.p.int("MaxResults", spotPage)
	if err != nil {
		return err
	}
	if most < 1 || most > 10*spotPage {
		return invalidParameter("Value ( %d ) for parameter maxResults is invalid.", most)
	}
	after, err := lastKey(c.p.str("NextToken"))
	if err != nil {
		return err
	}
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
				pool := spotRecord{typeName: t.Name, zone: z, product: product}
				// Pools of earlier pages are skipped, those of later ones left alone:
				// the history of all of them would take seconds.
				if !slices.Contains(products, product) || pool.prefix()+"~" <= after || len(found) > most {
					continue
				}
				records, err := pool.filter(filters, s.history(pool, start, end))
				if err != nil {
					return err
				}
				for _, r := range records {
					if r.key() > after {
						found = append(found, r)
					}
				}
			}
		}
	}
	shown, next, err := cut(found, spotRecord.key, "", most)
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

// prefix is what the keys of a pool's records begin with.
func (r spotRecord) prefix() string {
	return r.typeName + "\x00" + r.zone.name + "\x00" + r.product + "\x00"
}

// key orders records by type, zone and product, then from new to old.
func (r spotRecord) key() string {
	// Times before 2262 leave a number of 19 digits, which sorts as text.
	return r.prefix() + strconv.FormatInt(math.MaxInt64-r.at.UnixNano(), 10)
}

// filter keeps what passes the request's filters.
func (r spotRecord) filter(filters []filter, records []spotRecord) ([]spotRecord, error) {
	if len(filters) == 0 {
		return records, nil
	}
	var kept []spotRecord
	for _, r := range records {
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
			return nil, err
		}
		if ok {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// history returns the price at start, dated when it began as far as an hour
// back, and the changes until end.
func (s *Server) history(pool spotRecord, start, end time.Time) []spotRecord {
	typeName, z := pool.typeName, pool.zone
	price := s.spotPrice(typeName, z, start)
	if price == 0 {
		return nil
	}
	began := start.Truncate(spotStep)
	for i := 0; i < 6 && s.spotPrice(typeName, z, began.Add(-time.Nanosecond)) == price; i++ {
		began = began.Add(-spotStep)
	}
	records := []spotRecord{{typeName, pool.product, z, price, began}}
	for t := start.Truncate(spotStep).Add(spotStep); !t.After(end); t = t.Add(spotStep) {
		if now := s.spotPrice(typeName, z, t); now != price {
			price = now
			records = append(records, spotRecord{typeName, pool.product, z, price, t})
		}
	}
	// A move in the middle of a step shows from its own time on.
	for _, m := range s.moves {
		if m.from.After(start) && !m.from.After(end) && m.match.is(typeName, z, Spot) {
			records = append(records, spotRecord{typeName, pool.product, z, s.spotPrice(typeName, z, m.from), m.from})
		}
	}
	slices.SortStableFunc(records, func(a, b spotRecord) int { return strings.Compare(a.key(), b.key()) })
	return slices.CompactFunc(records, func(a, b spotRecord) bool { return a.at.Equal(b.at) })
}
