package catalogue

import (
	"slices"
	"strings"
	"sync"
)

// Type is one instance type. Sizes that do not apply are zero.
type Type struct {
	// Name is EC2's, as in m5.large.
	Name string
	VCPU int
	// MemoryMiB is what EC2 sells; an operating system sees a little less.
	MemoryMiB int64
	// Arch is EC2's name: x86_64 or arm64.
	Arch string
	// Hypervisor is nitro, xen, or empty on bare metal.
	Hypervisor string
	BareMetal  bool
	// CurrentGeneration is false for types that EC2 lists as previous.
	CurrentGeneration bool
	// Burstable types earn CPU credits.
	Burstable bool
	// PlacementGroups says whether the type may run in a placement group.
	PlacementGroups bool
	// ClockMHz is the sustained clock speed, 0 if unpublished.
	ClockMHz int
	// Manufacturer of the processor: Intel, AMD or AWS.
	Manufacturer string

	GPU         Accelerator
	Accelerator Accelerator

	// NVMeDisks local disks of NVMeGB gigabytes (10^9 bytes) each.
	NVMeDisks int
	NVMeGB    int64
	// EBS bandwidth in megabits per second and I/O operations per second:
	// sustained, and the most in a burst.
	EBSMbps, EBSMaxMbps int
	EBSIOPS, EBSMaxIOPS int

	// NetworkPerformance is EC2's wording, as in "Up to 10 Gigabit".
	NetworkPerformance string
	// NetworkMbps is the sustained bandwidth in megabits per second, 0 if
	// unpublished.
	NetworkMbps int
	// ENIs counts the network interfaces over all cards; IPv4PerENI is the
	// number of IPv4 addresses of each.
	ENIs, IPv4PerENI int
	// Cards holds the interfaces of each network card, by card index.
	Cards       []Card
	DefaultCard int
	// BranchENIs is how many branch interfaces a trunk carries, 0 if none.
	BranchENIs int
}

// Card is one network card.
type Card struct {
	ENIs        int
	Performance string
}

// Accelerator describes the devices of one kind that a type has.
type Accelerator struct {
	Count int
	// Manufacturer and Name as EC2 spells them, as in NVIDIA and A10G.
	Manufacturer, Name string
	// MemoryMiB of one device, 0 if unpublished.
	MemoryMiB int64
}

// Price says what a type costs in one region, in millionths of a dollar per
// hour for Linux on shared tenancy. A zero means that it isn't sold that way
// there.
type Price struct {
	OnDemand int64
	// Spot prices differ between zones and move; these are the average, the
	// lowest and the highest seen when the data was gathered.
	Spot, SpotMin, SpotMax int64
}

// Catalogue is the decoded data. Its methods may be called concurrently.
type Catalogue struct {
	date    string
	sources []string
	regions []region
	types   []Type
	index   map[string]int
	// offers[t*len(regions)+r] is type t in region r.
	offers []offer
}

type region struct {
	name  string
	zones []string
}

type offer struct {
	price Price
	// zones has bit i set if regions[r].zones[i] sells the type.
	zones uint32
}

// shared is decoded once; it is never assigned again.
var shared = sync.OnceValue(func() *Catalogue {
	c, err := decode(embedded)
	if err != nil {
		// The file is part of the binary and is checked by the tests.
		panic("instance catalogue: " + err.Error())
	}
	return c
})

// Get returns the embedded catalogue, decoding it on the first call.
func Get() *Catalogue { return shared() }

// Date is the day to which the prices belong, as in 2025-05-28.
func (c *Catalogue) Date() string { return c.date }

// Sources names what the data was made from, one line each.
func (c *Catalogue) Sources() []string { return slices.Clone(c.sources) }

// Types returns every type, sorted by name. Callers do not change it.
func (c *Catalogue) Types() []Type { return c.types }

// Type returns the type of that name.
func (c *Catalogue) Type(name string) (Type, bool) {
	i, ok := c.index[name]
	if !ok {
		return Type{}, false
	}
	return c.types[i], true
}

// Regions lists the regions that have prices, sorted.
func (c *Catalogue) Regions() []string {
	names := make([]string, len(c.regions))
	for i, r := range c.regions {
		names[i] = r.name
	}
	return names
}

// ZoneIDs lists the zones of a region that sell at least one type, sorted, as in
// usw2-az1. It is nil for a region that the catalogue doesn't know.
func (c *Catalogue) ZoneIDs(regionName string) []string {
	r, ok := c.region(regionName)
	if !ok {
		return nil
	}
	return slices.Clone(c.regions[r].zones)
}

// Price returns what a type costs in a region; ok is false if it isn't sold
// there or nothing is known of it.
func (c *Catalogue) Price(typeName, regionName string) (Price, bool) {
	o, _, ok := c.offer(typeName, regionName)
	return o.price, ok && o.price != Price{}
}

// SoldIn lists the zone IDs of a region that sell the type, sorted.
func (c *Catalogue) SoldIn(typeName, regionName string) []string {
	o, r, ok := c.offer(typeName, regionName)
	if !ok {
		return nil
	}
	var ids []string
	for i, id := range c.regions[r].zones {
		if o.zones&(1<<i) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *Catalogue) region(name string) (int, bool) {
	return slices.BinarySearchFunc(c.regions, name, func(r region, name string) int {
		return strings.Compare(r.name, name)
	})
}

func (c *Catalogue) offer(typeName, regionName string) (offer, int, bool) {
	t, ok := c.index[typeName]
	if !ok {
		return offer{}, 0, false
	}
	r, ok := c.region(regionName)
	if !ok {
		return offer{}, 0, false
	}
	return c.offers[t*len(c.regions)+r], r, true
}
