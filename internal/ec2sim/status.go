package ec2sim

import (
	"time"
)

// instanceEvent is a scheduled event of an instance, as in instance-retirement.
type instanceEvent struct {
	id, code, description string
	notBefore             time.Time
}

func (s *Server) describeInstanceStatus(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	all, err := s.visibleInstances(c.p.strs("InstanceId"))
	if err != nil {
		return err
	}
	filters := parseFilters(c.p)
	everyState := c.p.bool("IncludeAllInstances")
	var found []*instance
	for _, i := range all {
		if i.state != StateRunning && !everyState {
			continue
		}
		ok, err := passes(filters, nil, s.statusLookup(i))
		if err != nil {
			return err
		}
		if ok {
			found = append(found, i)
		}
	}
	shown, next, err := page(c.p, found, func(i *instance) string { return i.id }, 5, 1000)
	if err != nil {
		return err
	}
	c.x.in("instanceStatusSet", func() {
		each(&c.x, "item", shown, func(i *instance) { s.writeStatus(&c.x, i) })
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) statusLookup(i *instance) lookup {
	return func(name string) ([]string, bool) {
		switch name {
		case "availability-zone":
			return []string{i.subnet.zone.name}, true
		case "instance-state-name":
			return []string{i.state}, true
		case "instance-state-code":
			return []string{stateCode(i.state)}, true
		case "instance-status.status":
			return []string{s.statusOf(i, "instance")}, true
		case "instance-status.reachability":
			return []string{reachability(s.statusOf(i, "instance"))}, true
		case "system-status.status":
			return []string{s.statusOf(i, "system")}, true
		case "system-status.reachability":
			return []string{reachability(s.statusOf(i, "system"))}, true
		case "event.code":
			var codes []string
			for _, e := range i.events {
				codes = append(codes, e.code)
			}
			return codes, true
		}
		return nil, false
	}
}

// checksPass is how long after the start of an instance its status checks are
// still initializing; EC2 runs them every minute and wants two.
const checksPass = 2 * time.Minute

func (s *Server) statusOf(i *instance, check string) string {
	switch {
	case i.state != StateRunning:
		return "not-applicable"
	case i.impairedBy == check:
		return "impaired"
	case s.clock.Now().Sub(i.since) < checksPass:
		return "initializing"
	}
	return "ok"
}

func reachability(status string) string {
	switch status {
	case "ok":
		return "passed"
	case "impaired":
		return "failed"
	case "initializing":
		return "initializing"
	}
	return "insufficient-data"
}

func (s *Server) writeStatus(x *xmlWriter, i *instance) {
	x.str("instanceId", i.id)
	x.str("availabilityZone", i.subnet.zone.name)
	x.str("availabilityZoneId", i.subnet.zone.id)
	x.in("instanceState", func() { writeState(x, i.state) })
	for _, check := range []string{"system", "instance"} {
		status := s.statusOf(i, check)
		x.in(check+"Status", func() {
			x.str("status", status)
			x.in("details", func() {
				x.in("item", func() {
					x.str("name", "reachability")
					x.str("status", reachability(status))
					if status == "impaired" {
						x.time("impairedSince", i.impaired)
					}
				})
			})
		})
	}
	if len(i.events) == 0 {
		return
	}
	x.in("eventsSet", func() {
		each(x, "item", i.events, func(e instanceEvent) {
			x.str("instanceEventId", e.id)
			x.str("code", e.code)
			x.str("description", e.description)
			x.time("notBefore", e.notBefore)
			x.time("notAfter", e.notBefore.Add(2*time.Hour))
		})
	})
}
