package ec2

import (
	"cmp"
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// maxTypes is how many types one fleet may choose from: more don't make capacity
// likelier and make the request longer. It is Karpenter's number too.
const maxTypes = 60

// maxReservations is how many reservations one fleet may choose from: each needs a
// launch template of its own, of which a fleet takes 50.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html
const maxReservations = 10

// candidate is one offering that a launch may take.
type candidate struct {
	instance    *cloud.InstanceType
	zone        string
	microUSD    int64
	reservation string
	left        int // instances that the reservation has left
	// exotic types have what pods have to ask for: bare metal, accelerators.
	exotic bool
}

// fleetPlan is what one CreateFleet asks for.
type fleetPlan struct {
	// capacityType is of all candidates; one fleet has one market.
	capacityType string
	// market is of capacity blocks or interruptible reservations, which can be had only
	// by a fleet for such alone, and empty for everything else.
	market ec2types.MarketType
	// candidates are sorted by price, type, zone.
	candidates []candidate
}

// planFleet chooses the market and the offerings: reserved, interruptible and capacity
// blocks last, before spot before on-demand, the cheapest types, no bare metal or accelerators while anything else
// will do, and no spot that costs more than on-demand. It returns no candidates if
// all that was asked for is out, as far as is known.
func planFleet(claim *karpenter.NodeClaim, class *aws.EC2NodeClass, types []cloud.InstanceType, short shortages) fleetPlan {
	var reserved, interruptible, blocks, spot, onDemand []candidate
	for i := range types {
		t := &types[i]
		exotic := t.Labels[aws.LabelInstanceGPUCount] != "" || t.Labels[aws.LabelInstanceAcceleratorCount] != "" ||
			strings.HasPrefix(t.Labels[aws.LabelInstanceSize], "metal")
		for _, o := range t.Offerings {
			if !o.Available || short.out(o.CapacityType, t.Name, o.Zone, o.ReservationID) {
				continue
			}
			c := candidate{t, o.Zone, o.MicroUSD, o.ReservationID, o.ReservedCount, exotic}
			switch o.CapacityType {
			case cloud.Spot:
				spot = append(spot, c)
			case cloud.OnDemand:
				onDemand = append(onDemand, c)
			case cloud.Reserved:
				switch marketOf(class, o.ReservationID) {
				case ec2types.MarketTypeCapacityBlock:
					blocks = append(blocks, c)
				case ec2types.MarketTypeInterruptibleCapacityReservation:
					interruptible = append(interruptible, c)
				default:
					reserved = append(reserved, c)
				}
			}
		}
	}
	// minValues asks for variety that these two would take away.
	if !asksForVariety(claim) {
		reserved, interruptible = plainOnly(reserved), plainOnly(interruptible)
		spot, onDemand = plainOnly(spot), plainOnly(onDemand)
		if len(onDemand) > 0 {
			cheapest := slices.MinFunc(onDemand, byPrice).microUSD
			spot = slices.DeleteFunc(spot, func(c candidate) bool { return c.microUSD > cheapest })
		}
	}
	switch {
	case len(reserved) > 0:
		return fleetPlan{capacityType: cloud.Reserved, candidates: mostLeft(onePerPool(reserved))}
	case len(interruptible) > 0:
		return fleetPlan{
			capacityType: cloud.Reserved, market: ec2types.MarketTypeInterruptibleCapacityReservation,
			candidates: mostLeft(onePerPool(interruptible)),
		}
	case len(blocks) > 0:
		// One fleet launches into one block.
		slices.SortFunc(blocks, byPrice)
		return fleetPlan{capacityType: cloud.Reserved, market: ec2types.MarketTypeCapacityBlock, candidates: blocks[:1]}
	case len(spot) > 0:
		return fleetPlan{capacityType: cloud.Spot, candidates: cheapestTypes(spot)}
	}
	return fleetPlan{capacityType: cloud.OnDemand, candidates: cheapestTypes(onDemand)}
}

// marketOf is the market of the reservation, empty for an ordinary one.
func marketOf(class *aws.EC2NodeClass, reservation string) ec2types.MarketType {
	for _, r := range class.Status.CapacityReservations {
		switch {
		case r.ID != reservation:
		case r.ReservationType == aws.CapacityReservationTypeCapacityBlock:
			return ec2types.MarketTypeCapacityBlock
		case r.Interruptible:
			return ec2types.MarketTypeInterruptibleCapacityReservation
		}
	}
	return ""
}

// onePerPool keeps, of the reservations for a type in a zone, that with most left: EC2
// refuses a fleet that names a type and subnet twice. The others' turn comes when it
// is used up.
func onePerPool(list []candidate) []candidate {
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(
			strings.Compare(a.instance.Name, b.instance.Name),
			strings.Compare(a.zone, b.zone),
			cmp.Compare(b.left, a.left),
			strings.Compare(a.reservation, b.reservation),
		)
	})
	return slices.CompactFunc(list, func(a, b candidate) bool {
		return a.instance.Name == b.instance.Name && a.zone == b.zone
	})
}

// mostLeft keeps the few reservations that have most left, sorted as candidates are.
func mostLeft(list []candidate) []candidate {
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.left, a.left), byPrice(a, b))
	})
	list = list[:min(len(list), maxReservations)]
	slices.SortFunc(list, byPrice)
	return list
}

func asksForVariety(claim *karpenter.NodeClaim) bool {
	return slices.ContainsFunc(claim.Spec.Requirements, func(r karpenter.NodeSelectorRequirementWithMinValues) bool {
		return r.MinValues != nil
	})
}

// plainOnly drops exotic types, unless nothing else is left.
func plainOnly(list []candidate) []candidate {
	if !slices.ContainsFunc(list, func(c candidate) bool { return !c.exotic }) {
		return list
	}
	return slices.DeleteFunc(list, func(c candidate) bool { return c.exotic })
}

// cheapestTypes keeps the offerings of the cheapest types.
func cheapestTypes(list []candidate) []candidate {
	slices.SortFunc(list, byPrice)
	kept := map[string]bool{}
	return slices.DeleteFunc(list, func(c candidate) bool {
		if !kept[c.instance.Name] {
			if len(kept) == maxTypes {
				return true
			}
			kept[c.instance.Name] = true
		}
		return false
	})
}

func byPrice(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.microUSD, b.microUSD),
		strings.Compare(a.instance.Name, b.instance.Name),
		strings.Compare(a.zone, b.zone),
		strings.Compare(a.reservation, b.reservation),
	)
}

// subnetByZone picks the subnet of each zone that has the most free addresses. taken
// counts those that launches took since the subnets were read.
func subnetByZone(found []ec2types.Subnet, taken map[string]int, short shortages) map[string]string {
	best := map[string]ec2types.Subnet{}
	free := func(s ec2types.Subnet) int {
		return int(deref(s.AvailableIpAddressCount)) - taken[deref(s.SubnetId)]
	}
	for _, s := range found {
		if short.subnets[deref(s.SubnetId)] {
			continue
		}
		zone := deref(s.AvailabilityZone)
		// The subnets are sorted by ID, so that the first of equals wins.
		if b, has := best[zone]; !has || free(s) > free(b) {
			best[zone] = s
		}
	}
	out := make(map[string]string, len(best))
	for zone, s := range best {
		out[zone] = deref(s.SubnetId)
	}
	return out
}

// outcome is what became of a fleet.
type outcome struct {
	// launched are sorted by ID.
	launched []fleetInstance
	// short are the offerings, and subnets the subnets, that EC2 had nothing left of.
	short   []offeringKey
	subnets []string
	// capacity is the code of the first error for want of capacity, "" if none.
	capacity string
	// other is the first error of another kind.
	other *ec2types.CreateFleetError
}

// fleetInstance is one of a fleet's, and the item of the answer that it is in.
type fleetInstance struct {
	id string
	of *ec2types.CreateFleetInstance
}

// readFleet sorts the answer to CreateFleet.
func readFleet(instances []ec2types.CreateFleetInstance, errs []ec2types.CreateFleetError, capacityType string, reservationOf func(instanceType, zone string) string) outcome {
	var out outcome
	for i := range instances {
		for _, id := range instances[i].InstanceIds {
			out.launched = append(out.launched, fleetInstance{id, &instances[i]})
		}
	}
	slices.SortFunc(out.launched, func(a, b fleetInstance) int { return strings.Compare(a.id, b.id) })
	for i := range errs {
		e := &errs[i]
		code := deref(e.ErrorCode)
		if !isCapacity(code) {
			if out.other == nil {
				out.other = e
			}
			continue
		}
		if out.capacity == "" {
			out.capacity = code
		}
		o := overridesOf(e.LaunchTemplateAndOverrides)
		switch {
		case code == codeNoAddresses && o != nil:
			out.subnets = append(out.subnets, deref(o.SubnetId))
		case code == codeNoSpotRole:
			out.short = append(out.short, offeringKey{capacityType: cloud.Spot})
		case code == "MaxSpotInstanceCountExceeded":
			// A quota of the account, not a pool that ran dry.
			out.short = append(out.short, offeringKey{capacityType: cloud.Spot, instanceType: typeOf(o)})
		case o != nil:
			zone := deref(o.AvailabilityZone)
			out.short = append(out.short, offeringKey{
				capacityType: capacityType, instanceType: typeOf(o), zone: zone, reservation: reservationOf(typeOf(o), zone),
			})
		}
	}
	return out
}

func overridesOf(l *ec2types.LaunchTemplateAndOverridesResponse) *ec2types.FleetLaunchTemplateOverrides {
	if l == nil {
		return nil
	}
	return l.Overrides
}

func typeOf(o *ec2types.FleetLaunchTemplateOverrides) string {
	if o == nil {
		return ""
	}
	return string(o.InstanceType)
}
