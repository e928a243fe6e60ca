package ec2sim_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

func TestDescribeInstanceTypes(t *testing.T) {
	w := newWorld(t)
	pages := ec2.NewDescribeInstanceTypesPaginator(w.ec2, &ec2.DescribeInstanceTypesInput{
		MaxResults: aws.Int32(100),
		Filters:    []ec2types.Filter{filter("supported-virtualization-type", "hvm"), filter("processor-info.supported-architecture", "x86_64", "arm64")},
	})
	seen := map[string]ec2types.InstanceTypeInfo{}
	for pages.HasMorePages() {
		out := must(pages.NextPage(t.Context()))(t)
		if len(out.InstanceTypes) > 100 {
			t.Fatalf("a page of %d types", len(out.InstanceTypes))
		}
		for _, typ := range out.InstanceTypes {
			if _, twice := seen[string(typ.InstanceType)]; twice {
				t.Errorf("%s came twice", typ.InstanceType)
			}
			seen[string(typ.InstanceType)] = typ
		}
	}
	want := 0
	for _, typ := range catalogue.Get().Types() {
		if len(catalogue.Get().SoldIn(typ.Name, "us-west-2")) > 0 {
			want++
		}
	}
	if len(seen) != want || want < 800 {
		t.Errorf("%d types, want the %d that the region sells", len(seen), want)
	}
	for name, typ := range seen {
		// What an unmodified client reads without asking whether it is there.
		if typ.NetworkInfo == nil || typ.NetworkInfo.DefaultNetworkCardIndex == nil || len(typ.NetworkInfo.NetworkCards) == 0 ||
			typ.NetworkInfo.NetworkCards[0].MaximumNetworkInterfaces == nil || typ.NetworkInfo.Ipv4AddressesPerInterface == nil ||
			typ.VCpuInfo.DefaultVCpus == nil || typ.MemoryInfo.SizeInMiB == nil || len(typ.SupportedUsageClasses) == 0 ||
			len(typ.ProcessorInfo.SupportedArchitectures) == 0 || typ.BareMetal == nil {
			t.Errorf("%s lacks a field: %+v", name, typ)
		}
	}
	g := seen["g5.xlarge"]
	if g.GpuInfo == nil || *g.GpuInfo.Gpus[0].Name != "A10G" || *g.GpuInfo.Gpus[0].MemoryInfo.SizeInMiB != 24576 || *g.InstanceStorageInfo.TotalSizeInGB != 250 {
		t.Errorf("g5.xlarge: %+v", g)
	}
	if i := seen["inf2.xlarge"]; i.NeuronInfo == nil || i.GpuInfo != nil || *i.NeuronInfo.NeuronDevices[0].Count != 1 {
		t.Errorf("inf2.xlarge: %+v", i)
	}
	if m := seen["m5.metal"]; !*m.BareMetal || m.Hypervisor != "" {
		t.Errorf("m5.metal: %+v", m)
	}
	if n := seen["m5.large"].NetworkInfo.NetworkCards[0]; aws.ToFloat64(n.BaselineBandwidthInGbps) != 0.75 || aws.ToFloat64(n.PeakBandwidthInGbps) != 10 {
		t.Errorf("m5.large: network card %+v", n)
	}

	out := must(w.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m5.large", "c5.large"}}))(t)
	if len(out.InstanceTypes) != 2 || out.NextToken != nil {
		t.Errorf("two types by name: %d, token %v", len(out.InstanceTypes), out.NextToken)
	}
	out = must(w.ec2.DescribeInstanceTypes(t.Context(), &ec2.DescribeInstanceTypesInput{}))(t)
	if len(out.InstanceTypes) != 100 || out.NextToken == nil {
		t.Errorf("asked for everything: %d types, token %v; EC2 pages this list by itself", len(out.InstanceTypes), out.NextToken)
	}
}

// TestDescribeRefusals holds the errors of the Describe calls.
func TestDescribeRefusals(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	tests := map[string]struct {
		call func() error
		want string
	}{
		"types dry run": {func() error {
			_, err := w.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
			return err
		}, "DryRunOperation"},
		"unknown type": {func() error {
			_, err := w.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m5.lrage"}})
			return err
		}, "InvalidInstanceType"},
		"page too small": {func() error {
			_, err := w.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(1)})
			return err
		}, "InvalidParameterValue"},
		"page token": {func() error {
			_, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{NextToken: aws.String("nonsense")})
			return err
		}, "InvalidPaginationToken"},
		"unknown filter": {func() error {
			_, err := w.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("colour", "green")}})
			return err
		}, "InvalidParameterValue"},
		"subnet": {func() error {
			_, err := w.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0"}})
			return err
		}, "InvalidSubnetID.NotFound"},
		"group": {func() error {
			_, err := w.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-0"}})
			return err
		}, "InvalidGroup.NotFound"},
		"image": {func() error {
			_, err := w.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{"ami-0"}})
			return err
		}, "InvalidAMIID.NotFound"},
		"instance": {func() error {
			_, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}})
			return err
		}, "InvalidInstanceID.NotFound"},
		"instance malformed": {func() error {
			_, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"node-1"}})
			return err
		}, "InvalidInstanceID.Malformed"},
		"instance IDs and pages": {func() error {
			_, err := w.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}, MaxResults: aws.Int32(5)})
			return err
		}, "InvalidParameterCombination"},
		"terminate": {func() error {
			_, err := w.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}})
			return err
		}, "InvalidInstanceID.NotFound"},
		"zone": {func() error {
			_, err := w.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{ZoneNames: []string{"us-west-2x"}})
			return err
		}, "InvalidParameterValue"},
		"what isn't simulated": {func() error {
			_, err := w.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{})
			return err
		}, "InvalidAction"},
	}
	for name, test := range tests {
		wantCode(t, name, test.call(), test.want)
	}
}

func TestOfferingsAndZones(t *testing.T) {
	w := newWorld(t)
	zones := must(w.ec2.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{}))(t)
	ids := map[string]string{}
	for _, z := range zones.AvailabilityZones {
		ids[*z.ZoneName] = *z.ZoneId
	}
	if len(ids) != 4 || ids["us-west-2a"] != "usw2-az2" {
		t.Errorf("zones %v; letters must not follow IDs", ids)
	}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(w.ec2, &ec2.DescribeInstanceTypeOfferingsInput{LocationType: "availability-zone", MaxResults: aws.Int32(1000)})
	offered := map[string][]string{}
	for pages.HasMorePages() {
		for _, o := range must(pages.NextPage(t.Context()))(t).InstanceTypeOfferings {
			offered[string(o.InstanceType)] = append(offered[string(o.InstanceType)], ids[*o.Location])
		}
	}
	for name, got := range offered {
		slices.Sort(got)
		if want := catalogue.Get().SoldIn(name, "us-west-2"); !slices.Equal(got, want) {
			t.Errorf("%s offered in %v, sold in %v", name, got, want)
		}
	}
	out := must(w.ec2.DescribeInstanceTypeOfferings(t.Context(), &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: "availability-zone-id", Filters: []ec2types.Filter{filter("instance-type", "m5.*"), filter("location", "usw2-az1")},
	}))(t)
	if len(out.InstanceTypeOfferings) != 9 {
		t.Errorf("%d sizes of m5 in one zone, want 9", len(out.InstanceTypeOfferings))
	}
}

func TestPagingWhileInstancesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	before := w.launch(w.fleetInput("nodes", onDemand, 12, offer{"m5.large", "us-west-2a"}))
	seen := map[string]int{}
	token := (*string)(nil)
	for page := 0; ; page++ {
		out := must(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
			MaxResults: aws.Int32(5), NextToken: token, Filters: []ec2types.Filter{filter("instance-state-name", "pending", "running")},
		}))(t)
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				seen[*i.InstanceId]++
			}
		}
		if page == 0 {
			// Two that were shown already go, three new ones come.
			var shown []string
			for id := range seen {
				shown = append(shown, id)
			}
			must(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: shown[:2]}))(t)
			w.launch(w.fleetInput("nodes", onDemand, 3, offer{"m5.large", "us-west-2b"}))
		}
		if token = out.NextToken; token == nil {
			break
		}
	}
	for _, id := range before {
		if seen[id] != 1 {
			t.Errorf("%s was shown %d times", id, seen[id])
		}
	}
}

func TestFilters(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	spotID := w.launch(w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"}))[0]
	plainID := w.launch(w.fleetInput("nodes", onDemand, 1, offer{"c5.large", "us-west-2b"}))[0]
	must(w.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{plainID}, Tags: []ec2types.Tag{{Key: aws.String("Name"), Value: aws.String("ip-10-0-32-4*")}}}))(t)
	w.clock.Advance(time.Minute)
	tests := map[string]struct {
		filters []ec2types.Filter
		want    []string
	}{
		"all":                        {nil, []string{spotID, plainID}},
		"tag":                        {[]ec2types.Filter{filter("tag:karpenter.sh/nodepool", "default")}, []string{spotID, plainID}},
		"tag key":                    {[]ec2types.Filter{filter("tag-key", "Name")}, []string{plainID}},
		"tag of an unknown key":      {[]ec2types.Filter{filter("tag:nothing", "*")}, nil},
		"and":                        {[]ec2types.Filter{filter("tag-key", "Name"), filter("instance-type", "m5.large")}, nil},
		"or":                         {[]ec2types.Filter{filter("instance-type", "m5.large", "c5.large")}, []string{spotID, plainID}},
		"lifecycle":                  {[]ec2types.Filter{filter("instance-lifecycle", "spot")}, []string{spotID}},
		"wildcard":                   {[]ec2types.Filter{filter("instance-type", "?5.*")}, []string{spotID, plainID}},
		"escaped wildcard":           {[]ec2types.Filter{filter("tag:Name", `ip-*\*`)}, []string{plainID}},
		"wildcard that doesn't fit":  {[]ec2types.Filter{filter("tag:Name", `ip-10-0-32-?`)}, nil},
		"case matters":               {[]ec2types.Filter{filter("instance-type", "M5.large")}, nil},
		"state":                      {[]ec2types.Filter{filter("instance-state-name", "pending")}, nil},
		"zone":                       {[]ec2types.Filter{filter("availability-zone", "us-west-2b")}, []string{plainID}},
		"zone ID":                    {[]ec2types.Filter{filter("availability-zone-id", "usw2-az2")}, []string{spotID}},
		"security group":             {[]ec2types.Filter{filter("instance.group-id", w.groups()...)}, []string{spotID, plainID}},
		"fleet tag, set by EC2":      {[]ec2types.Filter{filter("tag-key", "aws:ec2:fleet-id")}, []string{spotID, plainID}},
		"launch template tag of EC2": {[]ec2types.Filter{filter("tag:aws:ec2launchtemplate:version", "1")}, []string{spotID, plainID}},
	}
	for name, test := range tests {
		out := must(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: test.filters}))(t)
		var got []string
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				got = append(got, *i.InstanceId)
			}
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestInstanceFields(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	i := w.describe(w.launch(w.fleetInput("nodes", onDemand, 1, offer{"m6g.large", "us-west-2c"}, offer{"m5.large", "us-west-2c"}))[0])
	switch {
	case i.SpotInstanceRequestId != nil || i.InstanceLifecycle != "":
		t.Errorf("an on-demand instance says spot: %v %v", i.SpotInstanceRequestId, i.InstanceLifecycle)
	case *i.ImageId != w.image("x86_64") || i.Architecture != "x86_64":
		t.Errorf("image %s, architecture %s", *i.ImageId, i.Architecture)
	case *i.SubnetId != w.subnets()["us-west-2c"] || *i.Placement.AvailabilityZoneId != "usw2-az3":
		t.Errorf("subnet %s in %s", *i.SubnetId, *i.Placement.AvailabilityZoneId)
	case !strings.HasSuffix(*i.PrivateDnsName, ".us-west-2.compute.internal") || !strings.HasPrefix(*i.PrivateDnsName, "ip-10-0-"):
		t.Errorf("private name %s", *i.PrivateDnsName)
	case !i.LaunchTime.Equal(began):
		t.Errorf("launched at %s", i.LaunchTime)
	case *i.IamInstanceProfile.Arn != "arn:aws:iam::123456789012:instance-profile/node":
		t.Errorf("profile %s", *i.IamInstanceProfile.Arn)
	case i.MetadataOptions.HttpTokens != "required" || *i.MetadataOptions.HttpPutResponseHopLimit != 1:
		t.Errorf("metadata options %+v", i.MetadataOptions)
	case len(i.BlockDeviceMappings) != 1 || *i.BlockDeviceMappings[0].DeviceName != "/dev/xvda":
		t.Errorf("devices %+v", i.BlockDeviceMappings)
	case len(i.NetworkInterfaces) != 1 || *i.NetworkInterfaces[0].Groups[0].GroupId != w.groups()[0]:
		t.Errorf("interfaces %+v", i.NetworkInterfaces)
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	ids := w.launch(w.fleetInput("nodes", onDemand, 3, offer{"m5.large", "us-west-2a"}))
	status := func(in *ec2.DescribeInstanceStatusInput) []ec2types.InstanceStatus {
		t.Helper()
		return must(w.ec2.DescribeInstanceStatus(t.Context(), in))(t).InstanceStatuses
	}
	impaired := &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{filter("instance-status.status", "impaired")}}
	if got := status(&ec2.DescribeInstanceStatusInput{}); len(got) != 0 {
		t.Errorf("%d statuses of pending instances, want none", len(got))
	}
	if got := status(&ec2.DescribeInstanceStatusInput{IncludeAllInstances: aws.Bool(true)}); len(got) != 3 {
		t.Errorf("%d statuses of all instances", len(got))
	}
	w.clock.Advance(time.Minute)
	if got := status(&ec2.DescribeInstanceStatusInput{}); len(got) != 3 || got[0].InstanceStatus.Status != "initializing" {
		t.Errorf("status after boot: %+v", got)
	}
	w.clock.Advance(5 * time.Minute)
	if got := status(&ec2.DescribeInstanceStatusInput{}); got[0].InstanceStatus.Status != "ok" || len(status(impaired)) != 0 {
		t.Errorf("status after a while: %+v", got)
	}
	w.do(ec2sim.Step{Impair: &ec2sim.Victims{IDs: ids[:1]}, For: ec2sim.Duration(10 * time.Minute)})
	got := status(impaired)
	if len(got) != 1 || *got[0].InstanceId != ids[0] || got[0].SystemStatus.Status != "ok" {
		t.Fatalf("impaired: %+v", got)
	}
	if d := got[0].InstanceStatus.Details[0]; d.Status != "failed" || !d.ImpairedSince.Equal(w.clock.Now()) {
		t.Errorf("details: %+v", d)
	}
	w.clock.Advance(10 * time.Minute)
	if got := status(impaired); len(got) != 0 {
		t.Errorf("still impaired: %+v", got)
	}
	w.do(ec2sim.Step{Retire: &ec2sim.Victims{IDs: ids[1:2]}})
	got = status(&ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{filter("event.code", "instance-reboot", "instance-retirement")}})
	if len(got) != 1 || *got[0].InstanceId != ids[1] || got[0].Events[0].Code != "instance-retirement" {
		t.Errorf("scheduled events: %+v", got)
	}
}

func TestEventualConsistency(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.ConsistencyDelay = 3 * time.Second })
	w.clock.Advance(time.Minute)
	w.template("nodes")
	ids := w.launch(w.fleetInput("nodes", onDemand, 1, offer{"m5.large", "us-west-2a"}))
	_, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: ids})
	wantCode(t, "describe at once", err, "InvalidInstanceID.NotFound")
	_, err = w.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: ids, Tags: []ec2types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
	wantCode(t, "tag at once", err, "InvalidInstanceID.NotFound")
	if out := must(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}))(t); len(out.Reservations) != 0 {
		t.Error("listed at once")
	}
	w.clock.Advance(3 * time.Second)
	if got := w.describe(ids[0]); got.State.Name != "pending" {
		t.Errorf("after the delay: %s", got.State.Name)
	}
	// Those of one call come to light one by one.
	w.launch(w.fleetInput("nodes", onDemand, 5, offer{"m5.large", "us-west-2a"}))
	w.clock.Advance(2250 * time.Millisecond)
	for want := 1; want <= 6; want++ {
		n := 0
		for _, r := range must(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}))(t).Reservations {
			n += len(r.Instances)
		}
		if n != want {
			t.Errorf("%d instances are listed, want %d", n, want)
		}
		w.clock.Advance(750 * time.Millisecond)
	}
}

func TestSpotPricesMove(t *testing.T) {
	w := newWorld(t)
	out := must(w.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
		ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(began), MaxResults: aws.Int32(2000),
	}))(t)
	if len(out.SpotPriceHistory) != 2000 || aws.ToString(out.NextToken) == "" {
		t.Fatalf("%d prices on the first page, token %q", len(out.SpotPriceHistory), aws.ToString(out.NextToken))
	}
	for _, p := range out.SpotPriceHistory {
		usd, err := strconv.ParseFloat(*p.SpotPrice, 64)
		limit, ok := catalogue.Get().Price(string(p.InstanceType), "us-west-2")
		if err != nil || !ok || usd <= 0 || usd*1e6 > float64(limit.OnDemand)+1 || p.Timestamp == nil || p.Timestamp.After(began) {
			t.Errorf("%s in %s: $%s at %v, on demand %d", p.InstanceType, *p.AvailabilityZone, *p.SpotPrice, p.Timestamp, limit.OnDemand)
		}
	}
	// Each pool has one price now, on all pages together.
	seen, pages := map[string]int{}, 0
	for token := aws.String(""); ; pages++ {
		out := must(w.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
			StartTime: aws.Time(began), MaxResults: aws.Int32(700), NextToken: token,
		}))(t)
		for _, p := range out.SpotPriceHistory {
			seen[fmt.Sprint(p.InstanceType, *p.AvailabilityZone, p.ProductDescription)]++
		}
		if token = out.NextToken; aws.ToString(token) == "" {
			break
		}
	}
	want := 0
	for _, typ := range catalogue.Get().Types() {
		if p, _ := catalogue.Get().Price(typ.Name, "us-west-2"); p.Spot > 0 {
			want += 2 * len(catalogue.Get().SoldIn(typ.Name, "us-west-2"))
		}
	}
	for pool, n := range seen {
		if n != 1 {
			t.Errorf("%d prices of %s now", n, pool)
		}
	}
	if len(seen) != want || pages < want/700 {
		t.Errorf("%d pools on %d pages, want %d", len(seen), pages, want)
	}
	// The present price is what an instance costs.
	w.template("nodes")
	id := w.launch(w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"}))[0]
	i, _ := w.sim.Instance(id)
	if got, want := fmt.Sprintf("0.%06d", i.MicroUSD), w.spotPrices("m5.large")["us-west-2a"]; got != want {
		t.Errorf("the instance costs $%s, the market says $%s", got, want)
	}
	first := w.spotPrices("m5.large")
	w.clock.Advance(24 * time.Hour)
	if second := w.spotPrices("m5.large"); fmt.Sprint(first) == fmt.Sprint(second) {
		t.Errorf("prices stood still for a day: %v", first)
	}
	history := must(w.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []ec2types.InstanceType{"m5.large"}, AvailabilityZone: aws.String("us-west-2a"),
		ProductDescriptions: []string{"Linux/UNIX"}, StartTime: aws.Time(began),
	}))(t).SpotPriceHistory
	if len(history) < 5 || *history[len(history)-1].SpotPrice != first["us-west-2a"] || !history[0].Timestamp.After(*history[1].Timestamp) {
		t.Errorf("history of a day: %d records, want several, the newest first", len(history))
	}
	// A move takes effect at once and shows in the history.
	before := w.spotPrices("m5.large")
	w.do(ec2sim.Step{Prices: &ec2sim.PriceChange{Match: ec2sim.Match{Types: []string{"m5.*"}, Zones: []string{"us-west-2a"}}, Factor: 2}, For: ec2sim.Duration(time.Hour)})
	after := w.spotPrices("m5.large")
	if after["us-west-2a"] <= before["us-west-2a"] || after["us-west-2b"] != before["us-west-2b"] {
		t.Errorf("prices were %v, are %v after doubling one", before, after)
	}
	w.clock.Advance(time.Hour)
	if got := w.spotPrices("m5.large")["us-west-2a"]; got >= after["us-west-2a"] {
		t.Errorf("price is still %s when the move is over", got)
	}
}
