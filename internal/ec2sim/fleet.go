package ec2sim

import (
	"cmp"
	"slices"
	"strconv"
)

// fleet is what one CreateFleet call of type instant made.
type fleet struct {
	id       string
	launched []fleetLaunch
	errors   []fleetError
}

type fleetLaunch struct {
	from *candidate
	ids  []string
}

type fleetError struct {
	from *candidate
	err  *apiError
}

// candidate is one override, or a launch template used without overrides: one
// way in which the fleet could launch instances.
type candidate struct {
	// index is its place in the request.
	index      int
	template   *template
	version    *templateVersion
	override   *params
	spec       launchSpec
	priority   float64
	weight     float64
	maxPrice   int64
	capacityID string
	lifecycle  string
}

func (s *Server) createFleet(c *call) error {
	goals, err := s.checkFleet(c.p)
	if err != nil {
		return err
	}
	if len(tagSpecifications(c.p)["fleet"]) > maxTags {
		return fail("TagLimitExceeded", "The maximum number of tags for a resource is %d.", maxTags)
	}
	candidates, failed, err := s.candidates(c.p, goals[0].market)
	if err != nil {
		return err
	}
	if c.p.bool("DryRun") {
		// A dry run tells of a request that could launch nothing at all.
		if len(candidates) == 0 && len(failed) > 0 {
			return failed[0].err
		}
		return dryRunOperation()
	}
	f, err := repeat(s, c, func(*fleet) bool { return true })
	if err != nil {
		return err
	}
	if f == nil {
		f = &fleet{id: s.fleetID(), errors: failed}
		for _, g := range goals {
			s.fill(f, g, candidates, c.p)
		}
		s.tag(f.id, tagSpecifications(c.p)["fleet"])
		s.remember(c, f)
	}
	s.writeFleet(&c.x, f)
	return nil
}

// fleetID has the form of a UUID, unlike other resources' IDs.
func (s *Server) fleetID() string {
	hex := func(n int) string {
		const digits = "0123456789abcdef"
		b := make([]byte, n)
		for i := range b {
			b[i] = digits[s.rng.IntN(16)]
		}
		return string(b)
	}
	return "fleet-" + hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12)
}

// goal is a number of capacity units to buy in one market.
type goal struct {
	capacityType string
	strategy     string
	units        float64
	least        float64
	// market is of fleets that launch into reserved capacity alone: they have one goal.
	market string
}

func (s *Server) checkFleet(p *params) ([]goal, error) {
	switch kind := p.str("Type"); kind {
	case "instant":
	case "", "maintain", "request":
		return nil, fail("UnsupportedOperation", "Fleets of type %s are not simulated; use instant.", cmp.Or(kind, "maintain"))
	default:
		return nil, invalidParameter("Invalid fleet type '%s'.", kind)
	}
	if len(p.list("LaunchTemplateConfigs")) == 0 {
		return nil, missingParameter("LaunchTemplateConfigs")
	}
	if !p.has("TargetCapacitySpecification.TotalTargetCapacity") {
		return nil, missingParameter("TargetCapacitySpecification.TotalTargetCapacity")
	}
	total, err := p.int("TargetCapacitySpecification.TotalTargetCapacity", 0)
	if err != nil {
		return nil, err
	}
	onDemand, err := p.int("TargetCapacitySpecification.OnDemandTargetCapacity", 0)
	if err != nil {
		return nil, err
	}
	spot, err := p.int("TargetCapacitySpecification.SpotTargetCapacity", 0)
	if err != nil {
		return nil, err
	}
	if total < 1 || onDemand < 0 || spot < 0 || onDemand+spot > total {
		return nil, fail("InvalidTargetCapacitySpecification", "Target capacities of %d on demand and %d spot do not fit a total of %d.", onDemand, spot, total)
	}
	switch kind := p.str("TargetCapacitySpecification.DefaultTargetCapacityType"); kind {
	case Spot:
		spot = total - onDemand
	case OnDemand, "":
		onDemand = total - spot
	case marketBlock, "reserved-capacity":
		return reservedGoal(p, kind, float64(total), onDemand+spot)
	default:
		return nil, invalidParameter("Invalid default target capacity type '%s'.", kind)
	}
	onDemandStrategy := cmp.Or(p.str("OnDemandOptions.AllocationStrategy"), "lowest-price")
	if !slices.Contains([]string{"lowest-price", "prioritized"}, onDemandStrategy) {
		return nil, invalidParameter("Invalid allocation strategy '%s' for On-Demand Instances.", onDemandStrategy)
	}
	spotStrategy := cmp.Or(p.str("SpotOptions.AllocationStrategy"), "lowest-price")
	if !slices.Contains([]string{"lowest-price", "price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "diversified"}, spotStrategy) {
		return nil, invalidParameter("Invalid allocation strategy '%s' for Spot Instances.", spotStrategy)
	}
	leastOnDemand, err := p.float("OnDemandOptions.MinTargetCapacity", 0)
	if err != nil {
		return nil, err
	}
	leastSpot, err := p.float("SpotOptions.MinTargetCapacity", 0)
	if err != nil {
		return nil, err
	}
	var goals []goal
	if onDemand > 0 {
		goals = append(goals, goal{capacityType: OnDemand, strategy: onDemandStrategy, units: float64(onDemand), least: leastOnDemand})
	}
	if spot > 0 {
		goals = append(goals, goal{capacityType: Spot, strategy: spotStrategy, units: float64(spot), least: leastSpot})
	}
	return goals, nil
}

// reservedGoal is that of a fleet for capacity blocks or interruptible reservations.
func reservedGoal(p *params, kind string, total float64, others int) ([]goal, error) {
	if others > 0 {
		return nil, fail("InvalidTargetCapacitySpecification", "A fleet for '%s' has no other target capacity.", kind)
	}
	market := kind
	types := p.strs("ReservedCapacityOptions.ReservationType")
	switch {
	case kind == marketBlock && len(types) > 0:
		return nil, fail("InvalidParameterCombination", "ReservedCapacityOptions are for the target capacity type reserved-capacity.")
	case kind == marketBlock:
	case !slices.Equal(types, []string{marketInterruptible}):
		return nil, invalidParameter("Invalid reservation types %v.", types)
	default:
		market = marketInterruptible
	}
	return []goal{{capacityType: OnDemand, strategy: "lowest-price", units: total, market: market}}, nil
}

// candidates resolves every override. What can never launch becomes an error of
// the fleet, not of the call, as in EC2; a missing launch template fails the call.
// market is the market type that they must have.
func (s *Server) candidates(p *params, market string) ([]*candidate, []fleetError, error) {
	var found []*candidate
	var failed []fleetError
	index := 0
	for _, config := range p.list("LaunchTemplateConfigs") {
		reference := config.at("LaunchTemplateSpecification")
		if reference == nil {
			return nil, nil, missingParameter("LaunchTemplateSpecification")
		}
		data, t, v, err := s.templateLayer(reference)
		if err != nil {
			return nil, nil, err
		}
		overrides := config.list("Overrides")
		if len(overrides) == 0 {
			overrides = []*params{{}}
		}
		for _, o := range overrides {
			if o.has("InstanceRequirements") {
				return nil, nil, fail("UnsupportedOperation", "Overrides by instance requirements are not simulated; name the instance types.")
			}
			cand := &candidate{index: index, template: t, version: v, override: o}
			index++
			if err := s.resolveCandidate(cand, data, p); err != nil {
				refusal, ok := err.(*apiError)
				if !ok {
					return nil, nil, err
				}
				failed = append(failed, fleetError{cand, refusal})
				continue
			}
			found = append(found, cand)
		}
	}
	type instancePool struct{ instanceType, subnet string }
	pools := map[instancePool]bool{}
	for _, cand := range found {
		pool := instancePool{cand.spec.typ.Name, cand.spec.subnet.id}
		if pools[pool] {
			return nil, nil, fail("InvalidFleetConfig", "The fleet configuration contains duplicate instance pools.")
		}
		pools[pool] = true
		if cand.spec.market != market {
			return nil, nil, fail("InvalidFleetConfig", "The market type '%s' of the launch template does not fit the fleet's '%s'.", cand.spec.market, market)
		}
	}
	return found, failed, nil
}

func (s *Server) resolveCandidate(cand *candidate, data, request *params) error {
	// Tags of the request come on top of the template's.
	tags := &params{kids: map[string]*params{}}
	if at := request.at("TagSpecification"); at != nil {
		tags.kids["TagSpecification"] = at
	}
	spec, err := s.resolve(layers{data, cand.override, tags})
	if err != nil {
		return err
	}
	if !s.soldIn(spec.typ.Name, spec.subnet.zone) {
		return fail("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", spec.typ.Name, spec.subnet.zone.name)
	}
	spec.templateID, spec.templateVersion = cand.template.id, cand.version.number
	cand.spec, cand.capacityID, cand.maxPrice = spec, spec.capacityTarget, spec.maxPrice
	if cand.weight, err = cand.override.float("WeightedCapacity", 1); err != nil {
		return err
	}
	if cand.weight <= 0 {
		return invalidParameter("The weighted capacity must be positive.")
	}
	// No priority is the lowest one; the smallest number is the highest.
	cand.priority, err = cand.override.float("Priority", 1e18)
	return err
}

// fill launches what a goal asks for, from the candidates in the order of its
// strategy. A fleet that can't reach its least capacity launches nothing.
func (s *Server) fill(f *fleet, g goal, candidates []*candidate, request *params) {
	type share struct {
		from  *candidate
		count int
	}
	var shares []share
	var errors []fleetError
	taken := map[poolKey]int{}
	addresses := map[*subnet]int{}
	left := g.units
	order := s.rank(g, candidates)
	for left > 0 && len(order) > 0 {
		cand := order[0]
		room, err := s.room(cand, g.capacityType, taken, addresses)
		if err != nil {
			errors = append(errors, fleetError{cand.in(g.capacityType), err})
			order = order[1:]
			continue
		}
		want := int((left + cand.weight - 1e-9) / cand.weight)
		count := min(room, max(want, 1))
		if g.strategy == "diversified" {
			// One at a time, round and round.
			count, order = 1, append(order[1:], cand)
		} else {
			order = order[1:]
		}
		taken[s.poolOf(cand, g.capacityType)] += count
		addresses[cand.spec.subnet] += count
		left -= float64(count) * cand.weight
		if n := slices.IndexFunc(shares, func(sh share) bool { return sh.from == cand }); n >= 0 {
			shares[n].count += count
		} else {
			shares = append(shares, share{cand, count})
		}
		if left > 0 && count == room {
			_, err := s.room(cand, g.capacityType, taken, addresses)
			if err != nil {
				errors = append(errors, fleetError{cand.in(g.capacityType), err})
			}
		}
	}
	f.errors = append(f.errors, s.told(g, errors, left)...)
	if g.least > 0 && g.units-left < g.least {
		return
	}
	for _, sh := range shares {
		cand := sh.from.in(g.capacityType)
		launch := fleetLaunch{from: cand}
		for n := range sh.count {
			i := s.launch(launchOrder{
				spec: cand.spec, capacityType: g.capacityType, reservation: s.id("r"), index: n,
				token: request.str("ClientToken"), fleetID: f.id, capacityID: cand.capacityID,
			})
			launch.ids = append(launch.ids, i.id)
		}
		f.launched = append(f.launched, launch)
	}
}

// told says which refusals the caller hears of. A spot strategy that looks at
// capacity never tries an empty pool while another will do, so it has nothing to
// tell unless it fell short; the others report each pool they tried in vain.
func (s *Server) told(g goal, errors []fleetError, left float64) []fleetError {
	if left <= 0 && g.capacityType == Spot && g.strategy != "lowest-price" {
		return nil
	}
	return errors
}

// in returns a copy that says in which market it was used.
func (c *candidate) in(capacityType string) *candidate {
	used := *c
	used.lifecycle = capacityType
	return &used
}

func (s *Server) poolOf(c *candidate, capacityType string) poolKey {
	if c.capacityID != "" {
		return poolKey{typeName: c.capacityID}
	}
	return poolKey{c.spec.typ.Name, c.spec.subnet.zone.name, capacityType}
}

// room says how many instances a candidate could launch now, beside what the
// fleet has already taken; it is at least 1 or an error says why not.
func (s *Server) room(c *candidate, capacityType string, taken map[poolKey]int, addresses map[*subnet]int) (int, *apiError) {
	key := s.poolOf(c, capacityType)
	var n int
	if c.capacityID != "" {
		r := s.reservations[c.capacityID]
		if err := s.fits(r, c.spec); err != nil {
			return 0, err
		}
		n = r.available(s) - taken[key]
		if n <= 0 {
			return 0, fail("ReservationCapacityExceeded", "The requested reservation %s does not have sufficient compatible and available capacity for this request.", c.capacityID)
		}
	} else {
		n = s.free(key) - taken[key]
		if r := s.openReservation(c.spec); r != nil && capacityType == OnDemand {
			n += r.available(s)
		}
		if n <= 0 {
			return 0, noCapacity(key)
		}
	}
	quota, err := s.quota(c.spec.typ, capacityType, taken)
	if err != nil {
		return 0, err
	}
	n = min(n, quota)
	if capacityType == Spot && c.maxPrice > 0 {
		if now := s.spotPrice(c.spec.typ.Name, c.spec.subnet.zone, s.clock.Now()); now > c.maxPrice {
			return 0, fail("SpotMaxPriceTooLow", "Your Spot request price of %s is lower than the minimum required Spot request fulfillment price of %s.", formatUSD(c.maxPrice), formatUSD(now))
		}
	}
	ips := c.spec.subnet.free() - addresses[c.spec.subnet]
	if ips <= 0 {
		return 0, fail("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", c.spec.subnet.id)
	}
	return min(n, ips), nil
}

// shallow is how few free instances make a spot pool likely to be interrupted
// soon; strategies that optimise for capacity use such a pool last.
const shallow = 5

// rank orders the candidates as the goal's strategy would try them. Equal ones
// keep the order of the request.
func (s *Server) rank(g goal, candidates []*candidate) []*candidate {
	type entry struct {
		cand     *candidate
		price    float64
		free     int
		priority float64
	}
	entries := make([]entry, 0, len(candidates))
	for _, cand := range candidates {
		price := s.price(cand.spec.typ.Name, cand.spec.subnet.zone, g.capacityType)
		if cand.capacityID != "" {
			price = 0 // paid for already
		}
		entries = append(entries, entry{cand, float64(price) / cand.weight, s.free(s.poolOf(cand, g.capacityType)), cand.priority})
	}
	// deep is false for a pool that is empty, or nearly so, after the launch.
	deep := func(e entry) int {
		switch after := e.free - int(g.units/e.cand.weight); {
		case e.free <= 0:
			return 2
		case after < shallow:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		byPrice := cmp.Compare(a.price, b.price)
		switch g.strategy {
		case "prioritized":
			return cmp.Or(cmp.Compare(a.priority, b.priority), byPrice)
		case "price-capacity-optimized":
			return cmp.Or(cmp.Compare(deep(a), deep(b)), byPrice)
		case "capacity-optimized", "diversified":
			return cmp.Or(cmp.Compare(b.free, a.free), byPrice)
		case "capacity-optimized-prioritized":
			return cmp.Or(cmp.Compare(deep(a), deep(b)), cmp.Compare(a.priority, b.priority), byPrice)
		}
		return byPrice
	})
	order := make([]*candidate, len(entries))
	for i, e := range entries {
		order[i] = e.cand
	}
	return order
}

func (s *Server) writeFleet(x *xmlWriter, f *fleet) {
	x.str("fleetId", f.id)
	x.in("fleetInstanceSet", func() {
		each(x, "item", f.launched, func(l fleetLaunch) {
			s.writeOverrides(x, l.from)
			x.str("lifecycle", l.from.lifecycle)
			x.items("instanceIds", l.ids...)
			x.str("instanceType", l.from.spec.typ.Name)
		})
	})
	x.in("errorSet", func() {
		each(x, "item", f.errors, func(e fleetError) {
			s.writeOverrides(x, e.from)
			x.opt("lifecycle", e.from.lifecycle)
			x.str("errorCode", e.err.code)
			x.str("errorMessage", e.err.message)
		})
	})
}

// writeOverrides says which override an instance or an error belongs to. The
// zone is filled in where only a subnet was given.
func (s *Server) writeOverrides(x *xmlWriter, c *candidate) {
	zoneName, subnetID := c.override.str("AvailabilityZone"), c.override.str("SubnetId")
	if sub := c.spec.subnet; sub != nil {
		zoneName, subnetID = sub.zone.name, sub.id
	} else if sub := s.net.subnet(subnetID); sub != nil {
		zoneName = sub.zone.name
	}
	x.in("launchTemplateAndOverrides", func() {
		x.in("launchTemplateSpecification", func() {
			x.str("launchTemplateId", c.template.id)
			x.str("version", strconv.Itoa(c.version.number))
		})
		x.in("overrides", func() {
			x.opt("instanceType", c.override.str("InstanceType"))
			x.opt("maxPrice", c.override.str("MaxPrice"))
			x.opt("subnetId", subnetID)
			x.opt("availabilityZone", zoneName)
			x.opt("weightedCapacity", c.override.str("WeightedCapacity"))
			x.opt("priority", c.override.str("Priority"))
			x.opt("imageId", c.override.str("ImageId"))
		})
	})
}
