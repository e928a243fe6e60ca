package ec2

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// keptVersion is the format's. Another one is ignored: what is kept is learnt again.
const keptVersion = 1

// Bounds on what is kept, for the object that holds it: at some 100 bytes an entry they
// make half of the MiB that an object may have.
// https://kubernetes.io/docs/concepts/configuration/configmap/#motivation
const (
	maxKeptMemory    = 3000
	maxKeptShortages = 1000
)

// memoryKeptFor is how long a measurement counts after the last node like it: images
// are replaced every few weeks. Karpenter's period.
const memoryKeptFor = 60 * 24 * time.Hour

// kept is what Knowledge writes. Lists are sorted, so that equal knowledge is equal text.
type kept struct {
	Version   int            `json:"version"`
	Shortages []keptShortage `json:"shortages,omitempty"`
	Subnets   []keptSubnet   `json:"subnets,omitempty"`
	Memory    []keptMemory   `json:"memory,omitempty"`
}

type keptShortage struct {
	CapacityType string    `json:"capacityType"`
	Type         string    `json:"type,omitempty"`
	Zone         string    `json:"zone,omitempty"`
	Reservation  string    `json:"reservation,omitempty"`
	Group        string    `json:"group,omitempty"`
	Until        time.Time `json:"until"`
	// Seconds is how long the offering is left alone this time.
	Seconds int `json:"seconds"`
}

type keptSubnet struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until"`
}

type keptMemory struct {
	Type  string `json:"type"`
	Image string `json:"image"`
	MiB   int64  `json:"mib"`
	// Seen is the day of the last node, as in 2026-11-30.
	Seen string `json:"seen"`
}

// Knowledge is what was learnt of the cloud that a restart would lose: which offerings
// and subnets are to be left alone and for how long, and how much memory nodes turned
// out to have. It holds no secret and stays below 512 KiB.
func (p *Provider) Knowledge() ([]byte, error) {
	now := p.clock.Now()
	k := kept{Version: keptVersion}
	k.Shortages, k.Subnets = p.unavailable.kept(now)
	k.Memory = p.memory.kept(now)
	text, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("write what is known of EC2: %w", err)
	}
	return text, nil
}

// Learn takes over what Knowledge wrote, as far as it still holds. What this process
// found out itself counts more.
func (p *Provider) Learn(text []byte) error {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("read what was known of EC2: %w", err)
	}
	if k.Version != keptVersion {
		return fmt.Errorf("read what was known of EC2: it is of format %d, not %d", k.Version, keptVersion)
	}
	now := p.clock.Now()
	p.unavailable.learn(k.Shortages, k.Subnets, now)
	p.memory.learn(k.Memory, now)
	return nil
}

// kept lists the shortages that hold, and those that are over so lately that the next
// would last longer. If they are too many those that last longest are kept.
func (u *unavailable) kept(now time.Time) ([]keptShortage, []keptSubnet) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []keptShortage
	for k, r := range u.last {
		if now.Before(r.until.Add(r.wait)) {
			out = append(out, keptShortage{k.capacityType, k.instanceType, k.zone, k.reservation, k.group, r.until.UTC(), int(r.wait / time.Second)})
		}
	}
	slices.SortFunc(out, func(a, b keptShortage) int { return b.Until.Compare(a.Until) })
	out = out[:min(len(out), maxKeptShortages)]
	slices.SortFunc(out, func(a, b keptShortage) int {
		return cmp.Or(strings.Compare(a.CapacityType, b.CapacityType), strings.Compare(a.Type, b.Type),
			strings.Compare(a.Zone, b.Zone), strings.Compare(a.Reservation, b.Reservation), strings.Compare(a.Group, b.Group))
	})
	var subnets []keptSubnet
	for id, until := range u.subnets {
		if now.Before(until) {
			subnets = append(subnets, keptSubnet{id, until.UTC()})
		}
	}
	slices.SortFunc(subnets, func(a, b keptSubnet) int { return strings.Compare(a.ID, b.ID) })
	return out, subnets[:min(len(subnets), maxKeptShortages)]
}

func (u *unavailable) learn(shortages []keptShortage, subnets []keptSubnet, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range shortages {
		key := offeringKey{s.CapacityType, s.Type, s.Zone, s.Reservation, s.Group}
		wait := min(max(time.Duration(s.Seconds)*time.Second, unavailableFor), maxUnavailable)
		// Nothing lasts longer from now than it could if it had been found now.
		until := s.Until
		if latest := now.Add(wait); until.After(latest) {
			until = latest
		}
		if _, known := u.last[key]; known || s.CapacityType == "" || !now.Before(until.Add(wait)) {
			continue
		}
		u.last[key] = rest{until: until, wait: wait}
		if now.Before(until) {
			u.until[key] = until
			u.changes++
		}
	}
	for _, s := range subnets {
		if _, known := u.subnets[s.ID]; !known && now.Before(s.Until) {
			until := s.Until
			if latest := now.Add(unavailableFor); until.After(latest) {
				until = latest
			}
			u.subnets[s.ID] = until
			u.changes++
		}
	}
}

// kept lists what was measured. If it is too much, what was seen last is kept.
func (l *memoryLog) kept(now time.Time) []keptMemory {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []keptMemory
	for k, m := range l.seen {
		if now.Sub(m.at) < memoryKeptFor {
			out = append(out, keptMemory{k.instanceType, k.image, m.bytes / mebibyte, m.at.UTC().Format(time.DateOnly)})
		}
	}
	byName := func(a, b keptMemory) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Image, b.Image))
	}
	slices.SortFunc(out, func(a, b keptMemory) int { return cmp.Or(strings.Compare(b.Seen, a.Seen), byName(a, b)) })
	out = out[:min(len(out), maxKeptMemory)]
	slices.SortFunc(out, byName)
	return out
}

func (l *memoryLog) learn(list []keptMemory, now time.Time) {
	for _, m := range list {
		at, err := time.Parse(time.DateOnly, m.Seen)
		if err != nil || now.Sub(at) >= memoryKeptFor || m.Image == "" || !plausible(m.Type, m.MiB*mebibyte) {
			continue
		}
		l.observe(memoryKey{m.Type, m.Image}, m.MiB*mebibyte, at)
	}
}
