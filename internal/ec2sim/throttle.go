package ec2sim

import (
	"math"
	"strings"
	"time"
)

// bucket is a token bucket: it holds up to size tokens and refills at rate per
// second.
type bucket struct {
	tokens float64
	at     time.Time
}

// limit is the size and the refill of a bucket.
type limit struct{ size, rate float64 }

// limitOf gives EC2's request limits, from "Request throttling for the Amazon
// EC2 API" in its developer guide: each action of a region has a bucket of its
// own, sized by its category but for the actions that the guide lists one by
// one. Other services are less strict and not limited here.
func limitOf(action string) limit {
	switch action {
	case "RunInstances":
		return limit{5, 2}
	case "TerminateInstances", "CreateLaunchTemplateVersion":
		return limit{100, 5}
	case "CreateTags", "DeleteTags":
		return limit{100, 10}
	}
	if strings.HasPrefix(action, "Describe") {
		return limit{100, 20}
	}
	return limit{50, 5} // mutating
}

// resources gives the further limits that count instances, not requests, and how
// many a call asks for; ok is false for other actions.
func resources(c *call) (lim limit, n float64, ok bool) {
	switch c.action {
	case "RunInstances":
		most, err := c.p.int("MaxCount", 1)
		if err != nil || c.p.bool("DryRun") {
			most = 0
		}
		return limit{1000, 2}, float64(most), true
	case "TerminateInstances":
		return limit{1000, 20}, float64(len(c.p.list("InstanceId"))), true
	}
	return limit{}, 0, false
}

// unfiltered is the limit of Describe calls that name nothing and page nothing.
func unfiltered() limit { return limit{50, 10} }

// admit lets a call pass, holds it up or refuses it: first the throttle, then
// the faults that were asked for.
func (s *Server) admit(c *call) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fail("Unavailable", "The simulator has been closed.")
	}
	err := s.throttle(c)
	var delay time.Duration
	if err == nil {
		delay, err = s.faultFor(c)
	}
	s.mu.Unlock()
	if delay > 0 {
		over := make(chan struct{})
		stop := s.clock.AfterFunc(delay, func() { close(over) })
		defer stop()
		select {
		case <-over:
		case <-s.closing:
		case <-c.http.Context().Done():
		}
	}
	if err != nil {
		return err
	}
	return nil
}

// throttle takes a token for the call; it returns nil if there is one.
func (s *Server) throttle(c *call) error {
	if s.cfg.Unthrottled || c.service.name != "ec2" {
		return nil
	}
	name, lim := c.action, limitOf(c.action)
	if strings.HasPrefix(name, "Describe") && !c.p.has("Filter") && !c.p.has("MaxResults") && !c.p.has("NextToken") && !named(c.p) {
		name, lim = name+" unfiltered", unfiltered()
	}
	if !s.take(name, lim, 1) {
		return fail("RequestLimitExceeded", "Request limit exceeded.")
	}
	if lim, n, ok := resources(c); ok && !s.take(c.action+" resources", lim, n) {
		return fail("RequestLimitExceeded", "Request limit exceeded. Account has been throttled on %s because it exceeded its resource request rate limit.", c.action)
	}
	return nil
}

// take removes n tokens from a bucket if it holds them.
func (s *Server) take(name string, lim limit, n float64) bool {
	now := s.clock.Now()
	b := s.buckets[name]
	if b == nil {
		b = &bucket{tokens: lim.size, at: now}
		s.buckets[name] = b
	}
	b.tokens = math.Min(lim.size, b.tokens+lim.rate*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// named says whether a Describe call asks for objects by name or ID.
func named(p *params) bool {
	for name := range p.kids {
		if strings.HasSuffix(name, "Id") || strings.HasSuffix(name, "Name") || name == "InstanceType" || name == "DryRun" {
			return true
		}
	}
	return false
}
