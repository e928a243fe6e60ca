package ec2sim

import (
	"path"
	"slices"
	"time"
)

// fault is a CallFault in force.
type fault struct {
	CallFault
	until time.Time
	left  int // hits left, if Count is set
}

// bootFault is a BootFault in force.
type bootFault struct {
	BootFault
	until time.Time
}

func over(until, now time.Time) bool { return !until.IsZero() && !now.Before(until) }

// faultFor says how long a call is held up, and with what it then fails.
func (s *Server) faultFor(c *call) (time.Duration, error) {
	now := s.clock.Now()
	s.faults = slices.DeleteFunc(s.faults, func(f *fault) bool {
		return over(f.until, now) || f.Count > 0 && f.left == 0
	})
	var delay time.Duration
	for _, f := range s.faults {
		if !f.hits(c) || f.Fraction > 0 && s.rng.Float64() >= f.Fraction {
			continue
		}
		f.left--
		delay += time.Duration(f.Delay)
		if f.Code != "" {
			return delay, fail(f.Code, "The simulator was asked to fail this call.")
		}
	}
	return delay, nil
}

func (f *fault) hits(c *call) bool {
	if f.Count > 0 && f.left == 0 {
		return false
	}
	name := c.service.name + ":" + c.action
	return len(f.Actions) == 0 || slices.ContainsFunc(f.Actions, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	})
}

// plan is how an instance's boot goes.
type plan struct {
	delay        time.Duration
	fails, hangs bool
}

func (s *Server) bootPlan(i *instance) plan {
	now := s.clock.Now()
	s.boots = slices.DeleteFunc(s.boots, func(b *bootFault) bool { return over(b.until, now) })
	var p plan
	for _, b := range s.boots {
		if !b.Match.is(i.typ.Name, i.subnet.zone, i.capacityType) {
			continue
		}
		p.delay += time.Duration(b.Delay)
		draw := s.rng.Float64()
		p.fails = p.fails || draw < b.Fail
		p.hangs = p.hangs || draw >= b.Fail && draw < b.Fail+b.Hang
	}
	return p
}
