package ec2sim

import (
	"math"
	"strings"
	"time"
)

// Capacity types, as in Instance.CapacityType.
const (
	Spot     = "spot"
	OnDemand = "on-demand"
)

// poolKey names a capacity pool: what is bought together runs out together.
type poolKey struct{ typeName, zone, capacityType string }

// pool counts the instances that run out of one pool.
type pool struct{ used int }

// shortage caps the pools that match at a number of instances for a while.
type shortage struct {
	match Match
	left  int
	from  time.Time
	until time.Time // zero: for good
}

// capacity is how many instances a pool holds in all, running ones included.
//
// By default a common type has room for 20,000 vCPUs on demand in each zone and
// bare metal for a tenth of that, an accelerated type for 64 instances; spot has
// between a quarter and all of that, by seed. That is far above what a test
// uses by accident, yet it ends.
func (s *Server) capacity(k poolKey) int {
	t, ok := s.cat.Type(k.typeName)
	z, inZone := s.net.zone(k.zone)
	if !ok || !inZone || !s.soldIn(k.typeName, z) || s.down(z) {
		return 0
	}
	n := 20_000 / t.VCPU
	switch {
	case t.GPU.Count+t.Accelerator.Count > 0:
		n = 64
	case t.BareMetal:
		n /= 10
	case !t.CurrentGeneration:
		n /= 4
	}
	if k.capacityType == Spot {
		if s.spotPrice(k.typeName, z, s.clock.Now()) == 0 {
			return 0
		}
		n = int(float64(n) * (0.25 + 0.75*s.fraction("depth", k.typeName, k.zone)))
	}
	now := s.clock.Now()
	for _, sh := range s.shortages {
		ends := !sh.until.IsZero() && !now.Before(sh.until)
		if !now.Before(sh.from) && !ends && sh.match.is(k.typeName, z, k.capacityType) {
			n = min(n, sh.left)
		}
	}
	return max(n, 0)
}

// down says whether a zone has an outage now.
func (s *Server) down(z zone) bool {
	until, ok := s.outages[z.name]
	return ok && !over(until, s.clock.Now())
}

// free is how many more instances a pool can start.
func (s *Server) free(k poolKey) int {
	used := 0
	if p := s.pools[k]; p != nil {
		used = p.used
	}
	return s.capacity(k) - used
}

func (s *Server) occupy(k poolKey, n int) {
	p := s.pools[k]
	if p == nil {
		p = &pool{}
		s.pools[k] = p
	}
	p.used += n
}

// quota is how many instances of a type the account's vCPU quota still allows,
// beside what a fleet has taken already; it is at least 1 or an error says why not.
func (s *Server) quota(t Type, capacityType string, taken map[poolKey]int) (int, *apiError) {
	limit := s.cfg.OnDemandVCPUs
	if capacityType == Spot {
		limit = s.cfg.SpotVCPUs
	}
	if limit == 0 {
		return math.MaxInt, nil
	}
	for _, i := range s.instances {
		if i.state != StateTerminated && i.capacityType == capacityType {
			limit -= i.typ.VCPU
		}
	}
	for k, n := range taken {
		if other, ok := s.cat.Type(k.typeName); ok {
			limit -= n * other.VCPU
		}
	}
	switch n := limit / t.VCPU; {
	case n > 0:
		return n, nil
	case capacityType == Spot:
		return 0, fail("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	return 0, fail("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket that the specified instance type belongs to.")
}

// noCapacity words the refusal of a pool that is empty.
func noCapacity(k poolKey) *apiError {
	market := "On-Demand"
	if k.capacityType == Spot {
		market = "Spot"
	}
	return fail("InsufficientInstanceCapacity", "There is not enough %s capacity of %s in %s now. Try another zone or instance type, or wait.",
		market, k.typeName, strings.TrimSpace(k.zone))
}
