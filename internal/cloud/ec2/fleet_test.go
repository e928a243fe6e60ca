package ec2

import (
	"fmt"
	"slices"
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestReadFleet(t *testing.T) {
	failure := func(code, instanceType, zone, subnet string) ec2types.CreateFleetError {
		e := ec2types.CreateFleetError{ErrorCode: &code}
		if instanceType != "" {
			e.LaunchTemplateAndOverrides = &ec2types.LaunchTemplateAndOverridesResponse{Overrides: &ec2types.FleetLaunchTemplateOverrides{
				InstanceType: ec2types.InstanceType(instanceType), AvailabilityZone: &zone, SubnetId: &subnet,
			}}
		}
		return e
	}
	none := func(string, string) string { return "" }
	out := readFleet(
		[]ec2types.CreateFleetInstance{{}, {InstanceIds: []string{"i-2"}}, {InstanceIds: []string{"i-1"}}},
		[]ec2types.CreateFleetError{
			failure("InvalidParameterValue", "", "", ""), failure("UnfulfillableCapacity", "m5.large", "a", "s"),
			failure(codeNoAddresses, "m5.large", "b", "subnet-b"), failure("MaxSpotInstanceCountExceeded", "c5.large", "a", "s"),
			failure("InsufficientInstanceCapacity", "", "", ""), failure(codeNoSpotRole, "", "", ""),
		}, "spot", none)
	if len(out.launched) != 2 || out.launched[0].id != "i-1" || out.launched[1].id != "i-2" || *out.other.ErrorCode != "InvalidParameterValue" || out.capacity != "UnfulfillableCapacity" {
		t.Errorf("read %+v", out)
	}
	want := []offeringKey{{"spot", "m5.large", "a", "", ""}, {capacityType: "spot", instanceType: "c5.large"}, {capacityType: "spot"}}
	if !slices.Equal(out.short, want) || !slices.Equal(out.subnets, []string{"subnet-b"}) {
		t.Errorf("short of %+v and %v", out.short, out.subnets)
	}
}

func TestPlanFleet(t *testing.T) {
	kind := func(name string, labels map[string]string, offerings ...cloud.Offering) cloud.InstanceType {
		return cloud.InstanceType{Name: name, Labels: labels, Offerings: offerings}
	}
	offer := func(capacityType, zone string, price int64) cloud.Offering {
		o := cloud.Offering{CapacityType: capacityType, Zone: zone, MicroUSD: price, Available: true}
		if capacityType == cloud.Reserved {
			o.ReservationID = "cr-" + zone
		}
		return o
	}
	gpu := map[string]string{aws.LabelInstanceGPUCount: "1"}
	var many []cloud.InstanceType
	for n := range 70 {
		many = append(many, kind(fmt.Sprintf("t%02d", n), nil, offer("on-demand", "a", int64(1000-n)), offer("on-demand", "b", int64(1000-n))))
	}
	block := &aws.EC2NodeClass{Status: aws.EC2NodeClassStatus{CapacityReservations: []aws.CapacityReservation{
		{ID: "cr-b", ReservationType: aws.CapacityReservationTypeCapacityBlock},
		{ID: "cr-c", Interruptible: true},
	}}}
	variety := &karpenter.NodeClaim{Spec: karpenter.NodeClaimSpec{Requirements: []karpenter.NodeSelectorRequirementWithMinValues{{Key: "x", MinValues: new(2)}}}}
	tests := map[string]struct {
		why   string
		claim *karpenter.NodeClaim
		types []cloud.InstanceType
		short shortages
		want  string
	}{
		"spot first": {"the cheapest market that is to be had", nil,
			[]cloud.InstanceType{kind("m", nil, offer("on-demand", "a", 100), offer("spot", "a", 40), offer("spot", "b", 30))}, shortages{},
			"spot m/b m/a"},
		"dear spot": {"spot above on-demand buys only interruptions", nil,
			[]cloud.InstanceType{kind("m", nil, offer("on-demand", "a", 100), offer("spot", "a", 101), offer("spot", "b", 100))}, shortages{},
			"spot m/b"},
		"all spot dear": {"", nil,
			[]cloud.InstanceType{kind("m", nil, offer("on-demand", "a", 100), offer("spot", "a", 101))}, shortages{},
			"on-demand m/a"},
		"spot alone": {"without on-demand there is nothing to compare with", nil,
			[]cloud.InstanceType{kind("m", nil, offer("spot", "a", 900))}, shortages{},
			"spot m/a"},
		"reserved first": {"what is paid for", nil,
			[]cloud.InstanceType{kind("m", nil, offer("reserved", "a", 0), offer("spot", "a", 1))}, shortages{},
			"reserved m/a"},
		"block last of reserved": {"a capacity block is a market of its own", nil,
			[]cloud.InstanceType{kind("m", nil, offer("reserved", "b", 0), offer("spot", "a", 1))}, shortages{},
			"reserved capacity-block m/b"},
		"interruptible before block": {"it doesn't end by itself", nil,
			[]cloud.InstanceType{kind("m", nil, offer("reserved", "b", 0), offer("reserved", "c", 0))}, shortages{},
			"reserved interruptible-capacity-reservation m/c"},
		"ordinary before interruptible": {"and not both in one fleet", nil,
			[]cloud.InstanceType{kind("m", nil, offer("reserved", "c", 0), offer("reserved", "a", 0))}, shortages{},
			"reserved m/a"},
		"known shortage": {"", nil,
			[]cloud.InstanceType{kind("m", nil, offer("spot", "a", 1), offer("on-demand", "a", 2))},
			shortages{offerings: map[offeringKey]bool{{capacityType: "spot", instanceType: "m", zone: "a"}: true}},
			"on-demand m/a"},
		"exotic": {"a GPU isn't burnt on pods that don't ask for one", nil,
			[]cloud.InstanceType{kind("g", gpu, offer("spot", "a", 1)), kind("m", nil, offer("spot", "a", 5)), kind("z.metal", map[string]string{aws.LabelInstanceSize: "metal"}, offer("spot", "a", 2))}, shortages{},
			"spot m/a"},
		"only exotic": {"", nil, []cloud.InstanceType{kind("g", gpu, offer("spot", "a", 1))}, shortages{}, "spot g/a"},
		"variety": {"minValues wants all there is", variety,
			[]cloud.InstanceType{kind("g", gpu, offer("spot", "a", 1)), kind("m", nil, offer("spot", "a", 5), offer("on-demand", "a", 3))}, shortages{},
			"spot g/a m/a"},
		"nothing": {"", nil, nil, shortages{}, "on-demand"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			claim := tt.claim
			if claim == nil {
				claim = &karpenter.NodeClaim{}
			}
			plan := planFleet(claim, block, tt.types, tt.short)
			got := plan.capacityType
			if plan.market != "" {
				got += " " + string(plan.market)
			}
			for _, c := range plan.candidates {
				got += " " + c.instance.Name + "/" + c.zone
			}
			if got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.why, got, tt.want)
			}
		})
	}
	plan := planFleet(&karpenter.NodeClaim{}, block, many, shortages{})
	if n := len(plan.candidates); n != 2*maxTypes || plan.candidates[0].instance.Name != "t69" {
		t.Errorf("of 70 types in 2 zones %d offerings are kept, from %s on", n, plan.candidates[0].instance.Name)
	}
}
