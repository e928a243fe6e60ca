package ec2sim

import "slices"

// runResult is what one RunInstances call launched.
type runResult struct {
	reservation string
	instances   []*instance
}

func (s *Server) runInstances(c *call) error {
	least, err := c.p.int("MinCount", 0)
	if err != nil {
		return err
	}
	most, err := c.p.int("MaxCount", 0)
	if err != nil {
		return err
	}
	switch {
	case !c.p.has("MinCount"):
		return missingParameter("MinCount")
	case !c.p.has("MaxCount"):
		return missingParameter("MaxCount")
	case least < 1 || most < least:
		return invalidParameter("Invalid instance counts: at least %d, at most %d.", least, most)
	}
	if len(c.p.list("NetworkInterface")) > 0 && (c.p.has("SubnetId") || c.p.has("SecurityGroupId")) {
		return fail("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request")
	}
	spec, err := s.runSpec(c.p)
	if err != nil {
		return err
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	result, err := repeat(s, c, func(r *runResult) bool { return true })
	if err != nil {
		return err
	}
	if result == nil {
		if result, err = s.run(spec, least, most, c.p.str("ClientToken")); err != nil {
			return err
		}
		s.remember(c, result)
	}
	c.x.str("reservationId", result.reservation)
	c.x.str("ownerId", s.cfg.Account)
	c.x.in("groupSet", func() {})
	c.x.in("instancesSet", func() {
		each(&c.x, "item", result.instances, func(i *instance) { s.writeInstance(&c.x, i) })
	})
	return nil
}

func (s *Server) runSpec(p *params) (launchSpec, error) {
	if !p.has("LaunchTemplate") {
		return s.resolve(layers{p})
	}
	data, t, v, err := s.templateLayer(p.at("LaunchTemplate"))
	if err != nil {
		return launchSpec{}, err
	}
	spec, err := s.resolve(layers{data, p})
	spec.templateID, spec.templateVersion = t.id, v.number
	return spec, err
}

// run launches as many of most as there is room for, and none if that is fewer
// than least.
func (s *Server) run(spec launchSpec, least, most int, token string) (*runResult, error) {
	if !s.soldIn(spec.typ.Name, spec.subnet.zone) {
		return nil, fail("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", spec.typ.Name, spec.subnet.zone.name)
	}
	capacityType := OnDemand
	if spec.spot {
		capacityType = Spot
	}
	cand := &candidate{spec: spec, capacityID: spec.capacityTarget, maxPrice: spec.maxPrice}
	room, err := s.room(cand, capacityType, nil, nil)
	if err != nil {
		return nil, err
	}
	if room < least {
		return nil, noCapacity(s.poolOf(cand, capacityType))
	}
	result := &runResult{reservation: s.id("r")}
	for n := range min(room, most) {
		result.instances = append(result.instances, s.launch(launchOrder{
			spec: spec, capacityType: capacityType, reservation: result.reservation, index: n, token: token, capacityID: cand.capacityID,
		}))
	}
	return result, nil
}

func (s *Server) terminateInstances(c *call) error {
	ids := c.p.strs("InstanceId")
	if len(ids) == 0 {
		return missingParameter("InstanceId")
	}
	if len(ids) > 1000 {
		return invalidParameter("At most 1000 instances can be terminated in one request.")
	}
	found, err := s.findInstances(ids)
	if err != nil {
		return err
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	var changed []*instance
	before := map[string]string{}
	for _, i := range found {
		if slices.Contains(changed, i) {
			continue
		}
		before[i.id] = i.state
		s.terminate(i, "Client.UserInitiatedShutdown")
		changed = append(changed, i)
	}
	c.x.in("instancesSet", func() {
		each(&c.x, "item", changed, func(i *instance) {
			c.x.str("instanceId", i.id)
			c.x.in("currentState", func() { writeState(&c.x, i.state) })
			c.x.in("previousState", func() { writeState(&c.x, before[i.id]) })
		})
	})
	return nil
}

// rebootInstances restarts machines, which stay running for EC2 meanwhile. As the API
// reference has it, those that have ended are passed over.
func (s *Server) rebootInstances(c *call) error {
	ids := c.p.strs("InstanceId")
	if len(ids) == 0 {
		return missingParameter("InstanceId")
	}
	found, err := s.findInstances(ids)
	if err != nil {
		return err
	}
	for _, i := range found {
		if i.state == StatePending {
			return fail("IncorrectState", "Instance '%s' cannot be rebooted while it is pending.", i.id)
		}
	}
	if err := c.dryRun(); err != nil {
		return err
	}
	for _, i := range found {
		s.reboot(i)
	}
	c.x.bool("return", true)
	return nil
}
