package ec2sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

const (
	spot     = ec2types.DefaultTargetCapacityTypeSpot
	onDemand = ec2types.DefaultTargetCapacityTypeOnDemand
)

// do carries out a step, which must be valid.
func (w *world) do(step ec2sim.Step) []string {
	w.t.Helper()
	return must(w.sim.Do(step))(w.t)
}

func shortage(left int, types []string, zones ...string) ec2sim.Step {
	return ec2sim.Step{Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: types, Zones: zones}, Left: left}}
}

// byType counts launched instances by type and zone.
func byType(out *ec2.CreateFleetOutput) map[string]int {
	n := map[string]int{}
	for _, i := range out.Instances {
		n[fmt.Sprint(i.InstanceType, " ", aws.ToString(i.LaunchTemplateAndOverrides.Overrides.AvailabilityZone))] += len(i.InstanceIds)
	}
	return n
}

func errorCodes(out *ec2.CreateFleetOutput) []string {
	var codes []string
	for _, e := range out.Errors {
		o := e.LaunchTemplateAndOverrides.Overrides
		codes = append(codes, fmt.Sprint(aws.ToString(e.ErrorCode), " ", o.InstanceType, " ", aws.ToString(o.AvailabilityZone)))
	}
	return codes
}

// spotPrices returns the present price of a type by zone.
func (w *world) spotPrices(typ string) map[string]string {
	w.t.Helper()
	out := must(w.ec2.DescribeSpotPriceHistory(w.t.Context(), &ec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(typ)}, ProductDescriptions: []string{"Linux/UNIX"},
		StartTime: aws.Time(w.clock.Now()),
	}))(w.t)
	prices := map[string]string{}
	for _, p := range out.SpotPriceHistory {
		if _, ok := prices[*p.AvailabilityZone]; !ok {
			prices[*p.AvailabilityZone] = *p.SpotPrice
		}
	}
	return prices
}

func TestOnDemandTakesTheCheapest(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	// m5.large costs $0.096, c5.large $0.085, m5a.large $0.086.
	in := w.fleetInput("nodes", onDemand, 2, offer{"m5.large", "us-west-2a"}, offer{"m5a.large", "us-west-2b"}, offer{"c5.large", "us-west-2c"})
	out := w.fleet(in)
	if got := byType(out); len(got) != 1 || got["c5.large us-west-2c"] != 2 || len(out.Errors) != 0 {
		t.Errorf("launched %v with errors %v, want both the cheapest", got, errorCodes(out))
	}

	// With the cheapest sold out the next one is taken, and the caller is told.
	w.do(shortage(0, []string{"c5.large"}))
	out = w.fleet(in)
	if got := byType(out); got["m5a.large us-west-2b"] != 2 {
		t.Errorf("launched %v, want m5a.large", got)
	}
	if got, want := errorCodes(out), []string{"InsufficientInstanceCapacity c5.large us-west-2c"}; !slices.Equal(got, want) {
		t.Errorf("errors %q, want %q", got, want)
	}

	// Capacity for one of two splits the fleet.
	w.sim.EndEffects()
	w.do(shortage(3, []string{"c5.large"}))
	out = w.fleet(in)
	if got := byType(out); got["c5.large us-west-2c"] != 1 || got["m5a.large us-west-2b"] != 1 {
		t.Errorf("launched %v, want one of each", got)
	}

	// All sold out: no instance, one error for each override, no error of the call.
	w.do(shortage(0, nil))
	out = w.fleet(in)
	if len(out.Instances) != 0 || len(out.Errors) != 3 {
		t.Errorf("launched %v with errors %v, want three errors and nothing else", byType(out), errorCodes(out))
	}
}

func TestOnDemandPriority(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	in := w.fleetInput("nodes", onDemand, 1, offer{"c5.large", "us-west-2a"}, offer{"m5.large", "us-west-2a"})
	in.OnDemandOptions.AllocationStrategy = ec2types.FleetOnDemandAllocationStrategyPrioritized
	in.LaunchTemplateConfigs[0].Overrides[0].Priority = aws.Float64(2)
	in.LaunchTemplateConfigs[0].Overrides[1].Priority = aws.Float64(1)
	if got := byType(w.fleet(in)); got["m5.large us-west-2a"] != 1 {
		t.Errorf("launched %v, want the one of priority 1", got)
	}
}

func TestSpotTakesTheCheapestPoolThatIsDeepEnough(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	prices := w.spotPrices("m5.large")
	if len(prices) != 4 {
		t.Fatalf("spot prices %v, want one for each zone", prices)
	}
	var zones []string
	for zone := range prices {
		zones = append(zones, zone)
	}
	slices.SortFunc(zones, func(a, b string) int { return cmpString(prices[a], prices[b]) })
	var offers []offer
	for zone := range prices {
		offers = append(offers, offer{"m5.large", zone})
	}
	in := w.fleetInput("nodes", spot, 1, offers...)
	if got := byType(w.fleet(in)); got["m5.large "+zones[0]] != 1 {
		t.Errorf("launched %v at prices %v, want %s", got, prices, zones[0])
	}
	// Nearly empty: still there, but likely to be taken back soon.
	w.do(shortage(3, []string{"m5.large"}, zones[0]))
	if got := byType(w.fleet(in)); got["m5.large "+zones[1]] != 1 {
		t.Errorf("launched %v at prices %v, want the deeper %s", got, prices, zones[1])
	}
	// By price alone the shallow one will do.
	in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyLowestPrice
	if got := byType(w.fleet(in)); got["m5.large "+zones[0]] != 1 {
		t.Errorf("launched %v at prices %v, want the cheapest %s", got, prices, zones[0])
	}
	// An empty pool is no error while another has room.
	w.do(shortage(0, []string{"m5.large"}, zones[0]))
	in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyPriceCapacityOptimized
	out := w.fleet(in)
	if len(out.Instances) != 1 || len(out.Errors) != 0 {
		t.Errorf("launched %v with errors %v, want one and no error", byType(out), errorCodes(out))
	}
	// And one for each pool if none has.
	w.do(shortage(0, []string{"m5.*"}))
	out = w.fleet(in)
	if len(out.Instances) != 0 || len(out.Errors) != 4 {
		t.Errorf("launched %v with errors %v, want four errors", byType(out), errorCodes(out))
	}
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestSpotStrategies(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	in := w.fleetInput("nodes", spot, 3, offer{"m5.large", "us-west-2a"}, offer{"m5.large", "us-west-2b"}, offer{"m5.large", "us-west-2c"})
	in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyDiversified
	if got := byType(w.fleet(in)); len(got) != 3 {
		t.Errorf("diversified launched %v, want one in each zone", got)
	}
	w.do(ec2sim.Step{Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Zones: []string{"us-west-2a", "us-west-2c"}}, Left: 10}})
	in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyCapacityOptimized
	if got := byType(w.fleet(in)); got["m5.large us-west-2b"] != 3 {
		t.Errorf("capacity-optimized launched %v, want the deepest pool", got)
	}
	in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized
	in.LaunchTemplateConfigs[0].Overrides[2].Priority = aws.Float64(0)
	if got := byType(w.fleet(in)); got["m5.large us-west-2c"] != 3 {
		t.Errorf("capacity-optimized-prioritized launched %v, want the highest priority", got)
	}
}

// TestFleetErrors holds what is wrong with one override, which other overrides
// survive.
func TestFleetErrors(t *testing.T) {
	tests := map[string]struct {
		why    string
		offer  offer
		change func(*world, *ec2.CreateFleetInput)
		want   string
	}{
		"zone": {why: "us-west-2d does not sell p4d", offer: offer{"p4d.24xlarge", "us-west-2d"}, want: "Unsupported"},
		"type": {why: "no such type", offer: offer{"m5.lrage", "us-west-2a"}, want: "InvalidParameterValue"},
		"architecture": {why: "the template's image is for x86_64", offer: offer{"m6g.large", "us-west-2a"},
			want: "InvalidParameterValue"},
		"subnet": {why: "no such subnet", offer: offer{"m5.large", "us-west-2a"},
			change: func(_ *world, in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].SubnetId = aws.String("subnet-00000000000000000")
			}, want: "InvalidSubnetID.NotFound"},
		"zone of the subnet": {why: "subnet and zone disagree", offer: offer{"m5.large", "us-west-2a"},
			change: func(_ *world, in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].AvailabilityZone = aws.String("us-west-2b")
			}, want: "InvalidParameterValue"},
		"image": {why: "no such image", offer: offer{"m5.large", "us-west-2a"},
			change: func(_ *world, in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].ImageId = aws.String("ami-00000000000000000")
			}, want: "InvalidAMIID.NotFound"},
		"price": {why: "the market is above the bid", offer: offer{"m5.large", "us-west-2a"},
			change: func(_ *world, in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].MaxPrice = aws.String("0.001")
			}, want: "SpotMaxPriceTooLow"},
		"outage": {why: "the zone is down", offer: offer{"m5.large", "us-west-2a"},
			change: func(w *world, _ *ec2.CreateFleetInput) {
				w.do(ec2sim.Step{Outage: &ec2sim.Outage{Zones: []string{"us-west-2a"}}})
			}, want: "InsufficientInstanceCapacity"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.template("nodes")
			in := w.fleetInput("nodes", spot, 1, test.offer)
			if test.change != nil {
				test.change(w, in)
			}
			out := w.fleet(in)
			if len(out.Instances) != 0 || len(out.Errors) != 1 || aws.ToString(out.Errors[0].ErrorCode) != test.want {
				t.Fatalf("%s: launched %v with errors %v, want %s", test.why, byType(out), errorCodes(out), test.want)
			}
			if o := out.Errors[0].LaunchTemplateAndOverrides.Overrides; string(o.InstanceType) != test.offer.typ || aws.ToString(o.AvailabilityZone) == "" {
				t.Errorf("the error names type %q and zone %q", o.InstanceType, aws.ToString(o.AvailabilityZone))
			}
			// A good override beside it launches all the same.
			good := w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2c"}).LaunchTemplateConfigs[0].Overrides[0]
			in.LaunchTemplateConfigs[0].Overrides = append(in.LaunchTemplateConfigs[0].Overrides, good)
			if got := byType(w.fleet(in)); got["m5.large us-west-2c"] != 1 {
				t.Errorf("beside it launched %v", got)
			}
		})
	}
}

// TestFleetRefusals holds what is wrong with the call as a whole.
func TestFleetRefusals(t *testing.T) {
	tests := map[string]struct {
		change func(*ec2.CreateFleetInput)
		want   string
	}{
		"template name": {func(in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("missing")
		}, "InvalidLaunchTemplateName.NotFoundException"},
		"template version": {func(in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.Version = aws.String("7")
		}, "InvalidLaunchTemplateId.VersionNotFound"},
		"type": {func(in *ec2.CreateFleetInput) { in.Type = ec2types.FleetTypeMaintain }, "UnsupportedOperation"},
		"target": {func(in *ec2.CreateFleetInput) {
			in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(0)
		}, "InvalidTargetCapacitySpecification"},
		"strategy": {func(in *ec2.CreateFleetInput) { in.SpotOptions.AllocationStrategy = "best" }, "InvalidParameterValue"},
		"dry run":  {func(in *ec2.CreateFleetInput) { in.DryRun = aws.Bool(true) }, "DryRunOperation"},
		"one pool twice": {func(in *ec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].Overrides = append(in.LaunchTemplateConfigs[0].Overrides, in.LaunchTemplateConfigs[0].Overrides[0])
		}, "InvalidFleetConfig"},
		"a template for another market": {func(in *ec2.CreateFleetInput) {
			in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeCapacityBlock
		}, "InvalidFleetConfig"},
		"reserved capacity of no type": {func(in *ec2.CreateFleetInput) {
			in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeReservedCapacity
		}, "InvalidParameterValue"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.template("nodes")
			in := w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"})
			test.change(in)
			_, err := w.ec2.CreateFleet(t.Context(), in)
			wantCode(t, name, err, test.want)
			if n := len(w.sim.Instances()); n != 0 {
				t.Errorf("%d instances launched", n)
			}
		})
	}
}

// Capacity blocks and interruptible reservations are markets of their own, which fleet
// and template have to agree on.
func TestFleetOfReservedMarkets(t *testing.T) {
	block, interruptible := ec2types.MarketTypeCapacityBlock, ec2types.MarketTypeInterruptibleCapacityReservation
	for market, target := range map[ec2types.MarketType]ec2types.DefaultTargetCapacityType{
		block: ec2types.DefaultTargetCapacityTypeCapacityBlock, interruptible: ec2types.DefaultTargetCapacityTypeReservedCapacity,
	} {
		t.Run(string(market), func(t *testing.T) {
			w := newWorld(t)
			made := must(w.ec2.CreateCapacityReservation(t.Context(), &ec2.CreateCapacityReservationInput{
				InstanceType: aws.String("m5.large"), InstancePlatform: "Linux/UNIX", AvailabilityZone: aws.String("us-west-2a"),
				InstanceCount: aws.Int32(1), InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
			}))(t)
			id := made.CapacityReservation.CapacityReservationId
			must(w.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
				LaunchTemplateName: aws.String("reserved"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
					ImageId:               aws.String(w.image("x86_64")),
					InstanceMarketOptions: &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: market},
					CapacityReservationSpecification: &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
						CapacityReservationTarget: &ec2types.CapacityReservationTarget{CapacityReservationId: id},
					},
				},
			}))(t)
			in := w.fleetInput("reserved", onDemand, 1, offer{"m5.large", "us-west-2a"})
			_, err := w.ec2.CreateFleet(t.Context(), in)
			wantCode(t, "an on-demand fleet", err, "InvalidFleetConfig")
			in.TargetCapacitySpecification.DefaultTargetCapacityType = target
			if market == interruptible {
				in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{
					ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation},
				}
			}
			if i := w.describe(w.launch(in)[0]); aws.ToString(i.CapacityReservationId) != *id {
				t.Errorf("launched into %q, want %s", aws.ToString(i.CapacityReservationId), *id)
			}
		})
	}
}

func TestFleetToken(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	in := w.fleetInput("nodes", spot, 2, offer{"m5.large", "us-west-2a"})
	in.ClientToken = aws.String("claim-1")
	first, again := w.launch(in), w.launch(in)
	if !slices.Equal(first, again) || len(w.sim.Instances()) != 2 {
		t.Errorf("launched %q, then %q; %d instances", first, again, len(w.sim.Instances()))
	}
	in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(3)
	_, err := w.ec2.CreateFleet(t.Context(), in)
	wantCode(t, "same token, other request", err, "IdempotentParameterMismatch")
	in.ClientToken = aws.String("claim-2")
	if got := w.launch(in); len(got) != 3 || len(w.sim.Instances()) != 5 {
		t.Errorf("another token launched %q", got)
	}
}

func TestFleetWeightsAndMinimum(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	in := w.fleetInput("nodes", onDemand, 10, offer{"m5.xlarge", "us-west-2a"})
	in.LaunchTemplateConfigs[0].Overrides[0].WeightedCapacity = aws.Float64(4)
	if got := w.launch(in); len(got) != 3 {
		t.Errorf("launched %d, want 3 of weight 4 for 10 units", len(got))
	}
	w.do(shortage(4, []string{"m5.xlarge"}))
	in.OnDemandOptions.MinTargetCapacity = aws.Int32(8)
	out := w.fleet(in)
	if len(out.Instances) != 0 || len(out.Errors) == 0 {
		t.Errorf("launched %v with errors %v, want nothing below the minimum", byType(out), errorCodes(out))
	}
}

func TestSubnetRunsOutOfAddresses(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Unthrottled = true })
	w.template("nodes")
	subnets := must(w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("map-public-ip-on-launch", "true"), filter("availability-zone", "us-west-2a")}}))(t)
	public := subnets.Subnets[0]
	free := *public.AvailableIpAddressCount
	if free != 1019 {
		t.Fatalf("%d addresses in a fresh /22, want 1019", free)
	}
	in := w.fleetInput("nodes", onDemand, free+1, offer{"t3.micro", "us-west-2a"})
	in.LaunchTemplateConfigs[0].Overrides[0].SubnetId = public.SubnetId
	out := w.fleet(in)
	if got := byType(out)["t3.micro us-west-2a"]; got != int(free) || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != "InsufficientFreeAddressesInSubnet" {
		t.Errorf("launched %d with errors %v, want %d and InsufficientFreeAddressesInSubnet", got, errorCodes(out), free)
	}
	if _, err := w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: out.Instances[0].InstanceIds[:3]}); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	subnets = must(w.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{SubnetIds: []string{*public.SubnetId}}))(t)
	if got := *subnets.Subnets[0].AvailableIpAddressCount; got != 3 {
		t.Errorf("%d addresses after three terminations, want 3", got)
	}
}

func TestQuotas(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.OnDemandVCPUs, c.SpotVCPUs = 8, 4 })
	w.template("nodes")
	for capacityType, want := range map[ec2types.DefaultTargetCapacityType]struct {
		launched int
		code     string
	}{onDemand: {4, "VcpuLimitExceeded"}, spot: {2, "MaxSpotInstanceCountExceeded"}} {
		out := w.fleet(w.fleetInput("nodes", capacityType, 5, offer{"m5.large", "us-west-2a"}))
		if got := byType(out)["m5.large us-west-2a"]; got != want.launched || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != want.code {
			t.Errorf("%s: launched %d with errors %v, want %d and %s", capacityType, got, errorCodes(out), want.launched, want.code)
		}
	}
}

func TestCapacityIsFinite(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	in := w.fleetInput("nodes", onDemand, 1000, offer{"m5.24xlarge", "us-west-2a"})
	n := len(w.launch(in))
	if n < 100 || n >= 1000 {
		t.Errorf("%d of 1000 m5.24xlarge launched in one zone, want a finite number above 100", n)
	}
	pools := w.sim.Pools()
	if len(pools) != 1 || pools[0].Used != n || pools[0].Capacity != n {
		t.Errorf("pools %+v after %d launches", pools, n)
	}
}

// TestSameSeedSameWorld replays calls against two simulators.
func TestSameSeedSameWorld(t *testing.T) {
	run := func(seed uint64) string {
		w := newWorld(t, func(c *ec2sim.Config) { c.Seed = seed; c.BootJitter = 10 * time.Second })
		w.template("nodes")
		w.launch(w.fleetInput("nodes", spot, 5, offer{"m5.large", "us-west-2a"}, offer{"c5.large", "us-west-2b"}, offer{"r5.large", "us-west-2c"}))
		w.clock.Advance(25 * time.Second)
		w.do(ec2sim.Step{Interrupt: &ec2sim.Victims{Count: 2}})
		w.clock.Advance(3 * time.Minute)
		text := ""
		for _, i := range w.sim.Instances() {
			text += fmt.Sprintln(i.ID, i.Type, i.Zone, i.State, i.StateTime, i.MicroUSD, i.PrivateIP, i.SpotRequestID)
		}
		return text
	}
	one, same, other := run(7), run(7), run(8)
	if one != same {
		t.Errorf("the same seed gave\n%s\nand then\n%s", one, same)
	}
	if one == other {
		t.Error("another seed gave the same world")
	}
}

// TestEveryTypeLaunches starts each type that the catalogue sells in the region.
func TestEveryTypeLaunches(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Unthrottled = true })
	w.template("nodes")
	cat := catalogue.Get()
	zones := map[string]string{"usw2-az2": "us-west-2a", "usw2-az1": "us-west-2b", "usw2-az3": "us-west-2c", "usw2-az4": "us-west-2d"}
	arm, subnets := w.image("arm64"), w.subnets()
	in := w.fleetInput("nodes", onDemand, 1, offer{"m5.large", "us-west-2a"})
	override := &in.LaunchTemplateConfigs[0].Overrides[0]
	for _, typ := range cat.Types() {
		sold := cat.SoldIn(typ.Name, "us-west-2")
		if len(sold) == 0 {
			continue
		}
		override.InstanceType, override.AvailabilityZone = ec2types.InstanceType(typ.Name), aws.String(zones[sold[0]])
		override.SubnetId, override.ImageId = aws.String(subnets[zones[sold[0]]]), nil
		if typ.Arch == "arm64" {
			override.ImageId = aws.String(arm)
		}
		out := w.fleet(in)
		if len(out.Instances) != 1 {
			t.Errorf("%s: errors %v", typ.Name, errorCodes(out))
		}
	}
}
