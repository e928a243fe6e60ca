package ec2

import (
	"sync"
	"time"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// unavailableFor is how long an offering that EC2 was out of is left alone:
// Karpenter's value, long enough not to hammer an empty pool and short enough to
// notice when it fills.
const unavailableFor = 3 * time.Minute

// maxUnavailable bounds how long an offering is left alone that EC2 is out of each
// time that it is asked for. Every time it waits twice as long, so that a lasting
// shortage costs few launches.
const maxUnavailable = 24 * time.Minute

// offeringKey names a way to buy a type. An empty instanceType or zone stands for
// all; reservation is set for reserved capacity alone. group is the placement group
// that EC2 had no room in: there may be some outside of it.
type offeringKey struct {
	capacityType, instanceType, zone, reservation, group string
}

// unavailable remembers what EC2 was out of.
type unavailable struct {
	mu      sync.Mutex
	until   map[offeringKey]time.Time
	last    map[offeringKey]rest
	subnets map[string]time.Time // subnets without free addresses
	changes uint64
}

// rest is how long an offering was left alone the last time, and until when.
type rest struct {
	until time.Time
	wait  time.Duration
}

func newUnavailable() *unavailable {
	return &unavailable{until: map[offeringKey]time.Time{}, last: map[offeringKey]rest{}, subnets: map[string]time.Time{}}
}

// mark says that EC2 is out of k as of now. Launches that find out at the same time
// count once; a shortage found again soon after the last was over lasts longer.
func (u *unavailable) mark(k offeringKey, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	last, met := u.last[k]
	wait := unavailableFor
	switch {
	case met && now.Before(last.until):
		wait = last.wait
	case met && now.Before(last.until.Add(last.wait)):
		wait = min(2*last.wait, maxUnavailable)
	}
	if _, known := u.until[k]; !known {
		u.changes++
	}
	u.until[k] = now.Add(wait)
	u.last[k] = rest{until: u.until[k], wait: wait}
}

// had says that EC2 gave k: the next shortage is a new one.
func (u *unavailable) had(k offeringKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.last, k)
}

// markSubnet says that a subnet has no free address as of now.
func (u *unavailable) markSubnet(id string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.subnets[id]; !known {
		u.changes++
	}
	u.subnets[id] = now.Add(unavailableFor)
}

// at returns what is unavailable at now. The version changes whenever the answer
// may have.
func (u *unavailable) at(now time.Time) (shortages, uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for k, t := range u.until {
		if !now.Before(t) {
			delete(u.until, k)
			u.changes++
		}
	}
	for k, r := range u.last {
		if !now.Before(r.until.Add(r.wait)) {
			delete(u.last, k)
		}
	}
	for id, t := range u.subnets {
		if !now.Before(t) {
			delete(u.subnets, id)
			u.changes++
		}
	}
	s := shortages{offerings: make(map[offeringKey]bool, len(u.until)), subnets: make(map[string]bool, len(u.subnets))}
	for k := range u.until {
		s.offerings[k] = true
	}
	for id := range u.subnets {
		s.subnets[id] = true
	}
	return s, u.changes
}

// shortages is what EC2 is out of at one moment.
type shortages struct {
	offerings map[offeringKey]bool
	subnets   map[string]bool
	// away holds zones that nothing should be launched in.
	away map[string]bool
	// group is the placement group of who asks, if any.
	group string
}

// of narrows the shortages to the class: what there is none of in its placement group
// counts, and the zones are left out in which all of its subnets are full. It says
// whether there are such.
func (s *shortages) of(class *aws.EC2NodeClass) (full bool) {
	s.group = groupOf(class)
	if len(s.subnets) == 0 {
		return false
	}
	room := map[string]bool{}
	for _, n := range class.Status.Subnets {
		room[n.Zone] = room[n.Zone] || !s.subnets[n.ID]
	}
	for zone, free := range room {
		if free {
			continue
		}
		if s.away == nil {
			s.away = map[string]bool{}
		}
		s.away[zone], full = true, true
	}
	return full
}

// groupOf is the class's placement group, as the class names it.
func groupOf(class *aws.EC2NodeClass) string {
	if g := class.Spec.PlacementGroupSelector; g != nil {
		return g.ID + g.Name // one of them
	}
	return ""
}

// out reports whether the offering is in a zone to stay away from, or covered by a
// shortage of itself, of its type in all zones, of all types in its zone, or of its
// whole market.
func (s shortages) out(capacityType, instanceType, zone, reservation string) bool {
	if s.away[zone] {
		return true
	}
	if len(s.offerings) == 0 {
		return false
	}
	exact := offeringKey{capacityType: capacityType, instanceType: instanceType, zone: zone, reservation: reservation}
	inGroup := exact
	inGroup.group = s.group
	if s.offerings[exact] || s.offerings[inGroup] {
		return true
	}
	return reservation == "" && (s.offerings[offeringKey{capacityType: capacityType, instanceType: instanceType}] ||
		s.offerings[offeringKey{capacityType: capacityType, zone: zone}] ||
		s.offerings[offeringKey{capacityType: capacityType}])
}
