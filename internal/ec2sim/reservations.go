package ec2sim

import (
	"slices"
	"strings"
	"time"
)

// reservation is an On-Demand Capacity Reservation: instances of one type in one
// zone, paid for whether used or not.
type reservation struct {
	id       string
	typ      Type
	zone     zone
	total    int
	targeted bool
	created  time.Time
	ends     time.Time
	state    string
}

func (r *reservation) available(s *Server) int {
	if r.state != "active" {
		return 0
	}
	used := 0
	for _, i := range s.instances {
		if i.capacityID == r.id && i.state != StateTerminated {
			used++
		}
	}
	return r.total - used
}

// fits says whether an instance of the spec may use the reservation.
func (s *Server) fits(r *reservation, spec launchSpec) *apiError {
	switch {
	case r == nil || r.state != "active":
		return fail("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' is not active.", spec.capacityTarget)
	case r.typ.Name != spec.typ.Name || r.zone != spec.subnet.zone:
		return fail("InvalidParameterValue", "The capacity reservation %s is for %s in %s, not for %s in %s.", r.id, r.typ.Name, r.zone.name, spec.typ.Name, spec.subnet.zone.name)
	}
	return nil
}

// openReservation finds a reservation that an instance of the spec runs in
// without naming it, nil if there is none.
func (s *Server) openReservation(spec launchSpec) *reservation {
	if spec.capacityPreference == "none" {
		return nil
	}
	for _, id := range sortedKeys(s.reservations) {
		r := s.reservations[id]
		if !r.targeted && s.fits(r, spec) == nil && r.available(s) > 0 {
			return r
		}
	}
	return nil
}

func (s *Server) createCapacityReservation(c *call) error {
	count, err := c.p.int("InstanceCount", 0)
	if err != nil {
		return err
	}
	ends, err := c.p.time("EndDate")
	if err != nil {
		return err
	}
	typ, known := s.cat.Type(c.p.str("InstanceType"))
	name := c.p.str("AvailabilityZone")
	if name == "" {
		name = c.p.str("AvailabilityZoneId")
	}
	z, ok := s.net.zone(name)
	switch {
	case count < 1:
		return invalidParameter("The instance count must be at least 1.")
	case !known:
		return invalidParameter("Invalid value '%s' for InstanceType.", c.p.str("InstanceType"))
	case !ok:
		return invalidParameter("Invalid availability zone: [%s]", name)
	case !s.soldIn(typ.Name, z):
		return fail("Unsupported", "The requested instance type (%s) is not supported in %s.", typ.Name, z.name)
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	r, err := repeat(s, c, func(r *reservation) bool { return s.reservations[r.id] == r })
	if err != nil {
		return err
	}
	if r == nil {
		key := poolKey{typ.Name, z.name, OnDemand}
		if s.free(key) < count {
			return noCapacity(key)
		}
		// What is reserved is no longer there for others.
		s.occupy(key, count)
		r = &reservation{
			id: s.id("cr"), typ: typ, zone: z, total: count, state: "active", created: s.clock.Now(), ends: ends,
			targeted: c.p.str("InstanceMatchCriteria") == "targeted",
		}
		s.reservations[r.id] = r
		for _, spec := range c.p.list("TagSpecifications") {
			for _, t := range spec.list("Tag") {
				s.tag(r.id, map[string]string{t.str("Key"): t.str("Value")})
			}
		}
		if !ends.IsZero() {
			s.after(ends.Sub(s.clock.Now()), func() { s.endReservation(r, "expired") })
		}
		s.remember(c, r)
	}
	c.x.in("capacityReservation", func() { s.writeReservation(&c.x, r) })
	return nil
}

// endReservation gives the unused rest of a reservation back. Its instances run
// on as ordinary on-demand ones.
func (s *Server) endReservation(r *reservation, state string) {
	if r.state != "active" {
		return
	}
	s.occupy(poolKey{r.typ.Name, r.zone.name, OnDemand}, -r.total)
	for _, i := range s.instances {
		if i.capacityID == r.id && i.state != StateTerminated {
			i.capacityID = ""
			s.occupy(i.pool(), 1)
		}
	}
	r.state = state
}

func (s *Server) cancelCapacityReservation(c *call) error {
	id := c.p.str("CapacityReservationId")
	r := s.reservations[id]
	if r == nil {
		return fail("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", id)
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	s.endReservation(r, "cancelled")
	c.x.bool("return", true)
	return nil
}

func (s *Server) describeCapacityReservations(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	ids := c.p.strs("CapacityReservationId")
	for _, id := range ids {
		if s.reservations[id] == nil {
			return fail("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", id)
		}
	}
	var found []*reservation
	for _, id := range sortedKeys(s.reservations) {
		r := s.reservations[id]
		ok, err := passes(parseFilters(c.p), s.tags[id], func(name string) ([]string, bool) {
			switch name {
			case "state":
				return []string{r.state}, true
			case "instance-type":
				return []string{r.typ.Name}, true
			case "availability-zone":
				return []string{r.zone.name}, true
			case "owner-id":
				return []string{s.cfg.Account}, true
			case "instance-match-criteria":
				return []string{r.criteria()}, true
			case "tenancy":
				return []string{"default"}, true
			case "instance-platform":
				return []string{"Linux/UNIX"}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, id)) {
			found = append(found, r)
		}
	}
	shown, next, err := page(c.p, found, func(r *reservation) string { return r.id }, 1, 1000)
	if err != nil {
		return err
	}
	c.x.in("capacityReservationSet", func() {
		each(&c.x, "item", shown, func(r *reservation) { s.writeReservation(&c.x, r) })
	})
	c.x.opt("nextToken", next)
	return nil
}

func (r *reservation) criteria() string {
	if r.targeted {
		return "targeted"
	}
	return "open"
}

func (s *Server) writeReservation(x *xmlWriter, r *reservation) {
	x.str("capacityReservationId", r.id)
	x.str("capacityReservationArn", s.arn("ec2", "capacity-reservation/"+r.id))
	x.str("ownerId", s.cfg.Account)
	x.str("instanceType", r.typ.Name)
	x.str("instancePlatform", "Linux/UNIX")
	x.str("availabilityZone", r.zone.name)
	x.str("availabilityZoneId", r.zone.id)
	x.str("tenancy", "default")
	x.int("totalInstanceCount", int64(r.total))
	x.int("availableInstanceCount", int64(r.available(s)))
	x.bool("ebsOptimized", false)
	x.bool("ephemeralStorage", false)
	x.str("state", r.state)
	x.time("startDate", r.created)
	x.time("createDate", r.created)
	if r.ends.IsZero() {
		x.str("endDateType", "unlimited")
	} else {
		x.str("endDateType", "limited")
		x.time("endDate", r.ends)
	}
	x.str("instanceMatchCriteria", r.criteria())
	x.str("reservationType", "default")
	s.writeTags(x, r.id)
}

// placementGroup says how instances stand to each other's hardware.
type placementGroup struct {
	id, name, strategy string
	partitions         int
}

func (s *Server) createPlacementGroup(c *call) error {
	name, strategy := c.p.str("GroupName"), c.p.str("Strategy")
	if strategy == "" {
		strategy = "cluster"
	}
	partitions, err := c.p.int("PartitionCount", 0)
	if err != nil {
		return err
	}
	switch {
	case name == "":
		return missingParameter("GroupName")
	case s.groups[name] != nil:
		return fail("InvalidPlacementGroup.Duplicate", "The Placement Group '%s' already exists.", name)
	case !slices.Contains([]string{"cluster", "spread", "partition"}, strategy):
		return invalidParameter("Invalid placement strategy '%s'.", strategy)
	case partitions != 0 && strategy != "partition", partitions < 0 || partitions > 7:
		return invalidParameter("A partition placement group has 1 to 7 partitions, the others none.")
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	if strategy == "partition" && partitions == 0 {
		partitions = 2
	}
	g := &placementGroup{id: s.id("pg"), name: name, strategy: strategy, partitions: partitions}
	s.groups[name] = g
	s.tag(g.id, tagSpecifications(c.p)["placement-group"])
	c.x.in("placementGroup", func() { s.writePlacementGroup(&c.x, g) })
	return nil
}

func (s *Server) deletePlacementGroup(c *call) error {
	name := c.p.str("GroupName")
	g := s.groups[name]
	if g == nil {
		return fail("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", name)
	}
	for _, i := range s.instances {
		if i.spec.group == name && i.state != StateTerminated {
			return fail("InvalidPlacementGroup.InUse", "The placement group '%s' is in use and may not be deleted.", name)
		}
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	delete(s.groups, name)
	delete(s.tags, g.id)
	c.x.bool("return", true)
	return nil
}

func (s *Server) describePlacementGroups(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	names, ids := c.p.strs("GroupName"), c.p.strs("GroupId")
	var found []*placementGroup
	for _, name := range sortedKeys(s.groups) {
		g := s.groups[name]
		ok, err := passes(parseFilters(c.p), s.tags[g.id], func(name string) ([]string, bool) {
			switch name {
			case "group-name":
				return []string{g.name}, true
			case "group-arn":
				return []string{s.arn("ec2", "placement-group/"+g.name)}, true
			case "strategy":
				return []string{g.strategy}, true
			case "state":
				return []string{"available"}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		if ok && (len(names) == 0 || slices.Contains(names, g.name)) && (len(ids) == 0 || slices.Contains(ids, g.id)) {
			found = append(found, g)
		}
	}
	if wanted := slices.Concat(names, ids); len(wanted) > 0 && !c.p.has("Filter") && len(found) < len(wanted) {
		return fail("InvalidPlacementGroup.Unknown", "One of the Placement Groups '%s' is unknown.", strings.Join(wanted, ", "))
	}
	c.x.in("placementGroupSet", func() {
		each(&c.x, "item", found, func(g *placementGroup) { s.writePlacementGroup(&c.x, g) })
	})
	return nil
}

func (s *Server) writePlacementGroup(x *xmlWriter, g *placementGroup) {
	x.str("groupName", g.name)
	x.str("groupId", g.id)
	x.str("groupArn", s.arn("ec2", "placement-group/"+g.name))
	x.str("strategy", g.strategy)
	x.str("state", "available")
	if g.partitions > 0 {
		x.int("partitionCount", int64(g.partitions))
	}
	if g.strategy == "spread" {
		x.str("spreadLevel", "rack")
	}
	s.writeTags(x, g.id)
}
