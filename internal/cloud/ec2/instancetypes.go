package ec2

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
)

// typeList is the answer for one class, with what it was made from.
type typeList struct {
	uid types.UID
	// shape is what capacity and labels depend on, besides the machines.
	shape    string
	machines uint64
	memory   uint64
	base     []cloud.InstanceType // without offerings
	// market is what offerings depend on.
	market marketVersion
	list   []cloud.InstanceType
}

type marketVersion struct {
	places, away                      string
	prices, spots, shortage, reserved uint64
}

// InstanceTypes is as in cloud.Provider. While nothing changes it returns the same
// slice, so that callers can tell by its identity. A class whose images and subnets
// aren't resolved yet is an error, never an empty list.
func (p *Provider) InstanceTypes(ctx context.Context, class *aws.EC2NodeClass) ([]cloud.InstanceType, error) {
	if len(class.Status.AMIs) == 0 || len(class.Status.Subnets) == 0 {
		return nil, fmt.Errorf("list instance types of EC2NodeClass %s: its images and subnets aren't resolved yet", class.Name)
	}
	// What EC2 and Pricing haven't said yet the catalogue has, and without spot prices
	// spot is to be had at the on-demand price.
	sold, machinesVersion, ok := p.machines.soon(ctx)
	if !ok {
		sold = fromCatalogue(catalogue.Get(), p.region)
	}
	prices, pricesVersion, spots, spotsVersion := p.known(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out, shortageVersion := p.unavailable.at(p.clock.Now())
	out.away = awayFrom(class.Status.Subnets, p.shifted(ctx))
	out.of(class)
	free, reservedVersion := p.reserved.free()

	memory, memoryVersion := p.memory.all(p.clock.Now())
	shape := shapeOf(class)
	market := marketVersion{placesOf(class), strings.Join(slices.Sorted(maps.Keys(out.away)), ","), pricesVersion, spotsVersion, shortageVersion, reservedVersion}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.types[class.Name]
	if known == nil || known.uid != class.UID || known.shape != shape || known.machines != machinesVersion || known.memory != memoryVersion {
		base, err := p.baseTypes(class, sold.machines, memory)
		if err != nil {
			return nil, fmt.Errorf("list instance types of EC2NodeClass %s: %w", class.Name, err)
		}
		known = &typeList{uid: class.UID, shape: shape, machines: machinesVersion, memory: memoryVersion, base: base}
		p.types[class.Name] = known
	}
	if known.list == nil || known.market != market {
		known.market = market
		known.list = withOfferings(known.base, offeringInput{
			class: class, sold: sold, prices: prices, spots: spots, short: out, free: free,
		})
	}
	return known.list, nil
}

// known are the prices that there are: without an answer the catalogue's, and of spot
// none.
func (p *Provider) known(ctx context.Context) (prices map[string]int64, pricesVersion uint64, spots map[spotPool]int64, spotsVersion uint64) {
	prices, pricesVersion, ok := p.prices.soon(ctx)
	if !ok {
		prices = cataloguePrices(catalogue.Get(), p.region)
	}
	spots, spotsVersion, ok = p.spots.soon(ctx)
	if !ok {
		spots = nil
	}
	return prices, pricesVersion, spots, spotsVersion
}

// Market is as in cloud.Provider.
func (p *Provider) Market(ctx context.Context) (cloud.Market, error) {
	prices, _, spots, _ := p.known(ctx)
	if err := ctx.Err(); err != nil {
		return cloud.Market{}, err
	}
	m := cloud.Market{Region: p.region, At: p.spots.age(), OnDemand: maps.Clone(prices)}
	if m.At.IsZero() {
		m.At = p.prices.age()
	}
	if spots != nil {
		m.Spot = map[string]map[string]int64{}
	}
	for pool, price := range spots {
		if m.Spot[pool.instanceType] == nil {
			m.Spot[pool.instanceType] = map[string]int64{}
		}
		m.Spot[pool.instanceType][pool.zone] = price
	}
	return m, nil
}

// shapeOf names everything of a class that capacity, labels and the choice of types
// depend on.
func shapeOf(class *aws.EC2NodeClass) string {
	text, err := json.Marshal([]any{
		class.AMIFamily(), class.Status.AMIs, class.Spec.Kubelet, class.Spec.BlockDeviceMappings,
		class.Spec.InstanceStorePolicy, class.Spec.NetworkInterfaces, class.Spec.CPUOptions,
		class.Spec.EnclaveOptions, class.Spec.ConnectionTracking,
	})
	if err != nil {
		panic("node class can't be written as JSON: " + err.Error()) // it was read from JSON
	}
	return string(text)
}

// placesOf names everything of a class that offerings depend on.
func placesOf(class *aws.EC2NodeClass) string {
	text, err := json.Marshal([]any{class.Status.Subnets, class.Status.CapacityReservations, class.Spec.PlacementGroupSelector})
	if err != nil {
		panic("node class can't be written as JSON: " + err.Error()) // it was read from JSON
	}
	return string(text)
}

// sizingOf reads what the class says about a node's size.
func (p *Provider) sizingOf(class *aws.EC2NodeClass) (*sizing, error) {
	k, err := readKubelet(class.Spec.Kubelet)
	if err != nil {
		return nil, err
	}
	f := family(class.AMIFamily())
	return &sizing{
		family: f, overheadPPM: p.overheadPPM, reservedENIs: int64(p.cfg.ReservedENIs),
		kubelet: k, volume: podVolumeBytes(f, class.Spec.BlockDeviceMappings),
		raid0:      deref(class.Spec.InstanceStorePolicy) == aws.InstanceStorePolicyRAID0,
		interfaces: class.Spec.NetworkInterfaces,
	}, nil
}

// baseTypes are the types that the class can launch, without offerings, sorted by name.
func (p *Provider) baseTypes(class *aws.EC2NodeClass, machines []machine, memory map[memoryKey]int64) ([]cloud.InstanceType, error) {
	s, err := p.sizingOf(class)
	if err != nil {
		return nil, err
	}
	var out []cloud.InstanceType
	for i := range machines {
		m := &machines[i]
		if !launchable(m, class) {
			continue
		}
		labels := nodeLabels(m, s.family, p.region)
		image, ok := cloud.ImageFor(class.Status.AMIs, labels)
		if !ok {
			continue
		}
		capacity := s.capacity(m)
		if seen, ok := memory[memoryKey{m.name, image}]; ok {
			capacity[corev1.ResourceMemory] = *resource.NewQuantity(seen, resource.BinarySI)
		}
		out = append(out, cloud.InstanceType{
			Name: m.name, Labels: labels, Capacity: capacity, Allocatable: s.allocatable(m, capacity),
		})
	}
	return out, nil
}

// launchable says whether the type can do what the class asks of the hardware.
func launchable(m *machine, class *aws.EC2NodeClass) bool {
	spec := &class.Spec
	if family(class.AMIFamily()).windows() && m.arch != "amd64" {
		return false
	}
	if o := spec.CPUOptions; o != nil && deref(o.NestedVirtualization) == aws.NestedVirtualizationEnabled && !m.nestedVirtualization {
		return false
	}
	if o := spec.EnclaveOptions; o != nil && deref(o.Enabled) && !m.enclaves {
		return false
	}
	if spec.ConnectionTracking != nil && !m.trackingConfigurable {
		return false
	}
	onCard := map[int32]int64{}
	var efaOnly int64
	for _, i := range spec.NetworkInterfaces {
		if int64(i.NetworkCardIndex) >= max(m.cards, 1) {
			return false
		}
		onCard[i.NetworkCardIndex]++
		if i.InterfaceType == aws.InterfaceTypeEFAOnly {
			efaOnly++
		}
	}
	return onCard[0] <= m.enis && efaOnly <= m.efas
}

// podVolumeBytes is the size of the volume that holds pods' files.
func podVolumeBytes(f family, mappings []*aws.BlockDeviceMapping) int64 {
	size := func(m *aws.BlockDeviceMapping) int64 {
		if m == nil || m.EBS == nil || m.EBS.VolumeSize == nil {
			return 0
		}
		return m.EBS.VolumeSize.Value()
	}
	for _, m := range mappings {
		if m.RootVolume && size(m) > 0 {
			return size(m)
		}
	}
	if f == custom && len(mappings) > 0 {
		// The image isn't known: the last disk is the one that was added for data.
		if n := size(mappings[len(mappings)-1]); n > 0 {
			return n
		}
	}
	for _, m := range mappings {
		if deref(m.DeviceName) == f.podVolume() && size(m) > 0 {
			return size(m)
		}
	}
	for _, v := range f.defaultVolumes() {
		if v.device == f.podVolume() {
			return v.gib * gibibyte
		}
	}
	return defaultVolumeGiB * gibibyte
}

// offeringInput is what offerings are made from.
type offeringInput struct {
	class  *aws.EC2NodeClass
	sold   machineList
	prices map[string]int64
	spots  map[spotPool]int64 // nil if unknown
	short  shortages
	free   map[string]int // instances left, by reservation
}

// withOfferings returns the types with the ways to buy each in the zones that the
// class has subnets in. Types without any are left out.
func withOfferings(base []cloud.InstanceType, in offeringInput) []cloud.InstanceType {
	zoneIDs := map[string]string{}
	for _, s := range in.class.Status.Subnets {
		zoneIDs[s.Zone] = s.ZoneID
	}
	names := slices.Sorted(maps.Keys(zoneIDs))
	reservations := map[string][]aws.CapacityReservation{}
	for _, r := range in.class.Status.CapacityReservations {
		reservations[r.InstanceType] = append(reservations[r.InstanceType], r)
	}
	out := make([]cloud.InstanceType, 0, len(base))
	for _, t := range base {
		i, found := slices.BinarySearchFunc(in.sold.machines, t.Name, func(m machine, name string) int {
			return strings.Compare(m.name, name)
		})
		if !found {
			continue
		}
		t.Offerings = offerings(&in.sold.machines[i], in.sold.soldIn(t.Name, zoneIDs, names), zoneIDs, reservations[t.Name], in)
		if len(t.Offerings) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func offerings(m *machine, zones []string, zoneIDs map[string]string, reservations []aws.CapacityReservation, in offeringInput) []cloud.Offering {
	var out []cloud.Offering
	onDemand := in.prices[m.name]
	for _, zone := range zones {
		zoneID, used := zoneIDs[zone]
		if !used {
			continue
		}
		add := func(capacityType string, price int64) {
			if price > 0 {
				out = append(out, cloud.Offering{
					CapacityType: capacityType, Zone: zone, ZoneID: zoneID, MicroUSD: price,
					Available: !in.short.out(capacityType, m.name, zone, ""),
				})
			}
		}
		if m.onDemand {
			add(cloud.OnDemand, onDemand)
		}
		if m.spot {
			price := in.spots[spotPool{m.name, zone}]
			if in.spots == nil {
				price = onDemand
			}
			add(cloud.Spot, price)
		}
	}
	for _, r := range reservations {
		zoneID, used := zoneIDs[r.AvailabilityZone]
		if !used {
			continue
		}
		free := in.free[r.ID]
		out = append(out, cloud.Offering{
			// It is paid for whether it is used or not.
			CapacityType: cloud.Reserved, Zone: r.AvailabilityZone, ZoneID: zoneID, MicroUSD: 0,
			Available: free > 0 && r.State != aws.CapacityReservationStateExpiring &&
				!in.short.out(cloud.Reserved, m.name, r.AvailabilityZone, r.ID),
			ReservationID: r.ID, ReservedCount: free,
		})
	}
	slices.SortFunc(out, func(a, b cloud.Offering) int {
		return cmp.Or(
			cmp.Compare(a.MicroUSD, b.MicroUSD),
			strings.Compare(a.CapacityType, b.CapacityType),
			strings.Compare(a.Zone, b.Zone),
			strings.Compare(a.ReservationID, b.ReservationID),
		)
	})
	return out
}
