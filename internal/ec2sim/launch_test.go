package ec2sim_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

func TestLaunchTemplates(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	id := w.template("karpenter.k8s.aws/123")
	_, err := w.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"missing"}})
	wantCode(t, "by an unknown name", err, "InvalidLaunchTemplateName.NotFoundException")
	_, err = w.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{"lt-00000000000000000"}})
	wantCode(t, "by an unknown ID", err, "InvalidLaunchTemplateId.NotFound")
	_, err = w.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{"template"}})
	wantCode(t, "by a malformed ID", err, "InvalidLaunchTemplateId.Malformed")
	for what, in := range map[string]*ec2.DescribeLaunchTemplatesInput{
		"name": {LaunchTemplateNames: []string{"karpenter.k8s.aws/123"}},
		"ID":   {LaunchTemplateIds: []string{id}},
		"tag":  {Filters: []ec2types.Filter{filter("tag:eks:eks-cluster-name", "demo")}},
	} {
		out := must(w.ec2.DescribeLaunchTemplates(ctx, in))(t)
		if len(out.LaunchTemplates) != 1 || *out.LaunchTemplates[0].LaunchTemplateId != id || *out.LaunchTemplates[0].LatestVersionNumber != 1 {
			t.Errorf("by %s: %+v", what, out.LaunchTemplates)
		}
	}

	data := &ec2types.RequestLaunchTemplateData{ImageId: aws.String(w.image("x86_64")), InstanceType: "m5.large"}
	in := &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("karpenter.k8s.aws/123"), LaunchTemplateData: data}
	_, err = w.ec2.CreateLaunchTemplate(ctx, in)
	wantCode(t, "the name is taken", err, "InvalidLaunchTemplateName.AlreadyExistsException")
	_, err = w.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("no spaces"), LaunchTemplateData: data})
	wantCode(t, "the name is malformed", err, "InvalidLaunchTemplateName.MalformedException")
	_, err = w.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("userdata"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{UserData: aws.String("!!")}})
	wantCode(t, "the user data is no base64", err, "InvalidUserData.Malformed")
	_, err = w.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("userdata"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{UserData: aws.String(base64.StdEncoding.EncodeToString(make([]byte, 17<<10)))}})
	wantCode(t, "the user data is too long", err, "InvalidParameterValue")

	in = &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("second"), LaunchTemplateData: data, ClientToken: aws.String("token")}
	first := must(w.ec2.CreateLaunchTemplate(ctx, in))(t)
	again := must(w.ec2.CreateLaunchTemplate(ctx, in))(t)
	if *first.LaunchTemplate.LaunchTemplateId != *again.LaunchTemplate.LaunchTemplateId {
		t.Error("one token made two templates")
	}

	v2 := must(w.ec2.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
		LaunchTemplateName: aws.String("second"), SourceVersion: aws.String("1"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "c5.large"},
	}))(t)
	if *v2.LaunchTemplateVersion.VersionNumber != 2 || *v2.LaunchTemplateVersion.LaunchTemplateData.ImageId != *data.ImageId {
		t.Errorf("second version: %+v", v2.LaunchTemplateVersion)
	}
	for version, want := range map[string]string{"$Latest": "c5.large", "$Default": "m5.large", "1": "m5.large", "2": "c5.large"} {
		out := must(w.ec2.RunInstances(ctx, &ec2.RunInstancesInput{MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String("second"), Version: aws.String(version)}}))(t)
		if got := string(out.Instances[0].InstanceType); got != want {
			t.Errorf("version %s launched %s, want %s", version, got, want)
		}
	}

	// What was stored comes back.
	out := must(w.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: aws.String(id)}))(t)
	got := out.LaunchTemplateVersions[0].LaunchTemplateData
	if *got.UserData != base64.StdEncoding.EncodeToString([]byte("hello")) || got.NetworkInterfaces[0].Groups[0] != w.groups()[0] ||
		*got.BlockDeviceMappings[0].Ebs.VolumeSize != 20 || got.MetadataOptions.HttpTokens != "required" || *got.IamInstanceProfile.Name != "node" {
		t.Errorf("template data: %+v", got)
	}

	must(w.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)}))(t)
	_, err = w.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: aws.String(id)})
	wantCode(t, "delete twice", err, "InvalidLaunchTemplateId.NotFound")
	_, err = w.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("karpenter.k8s.aws/123")})
	wantCode(t, "delete by name after", err, "InvalidLaunchTemplateName.NotFoundException")
}

func TestRunInstances(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Unthrottled = true })
	w.template("nodes")
	good := func() *ec2.RunInstancesInput {
		return &ec2.RunInstancesInput{
			MinCount: aws.Int32(1), MaxCount: aws.Int32(2), InstanceType: "m5.large",
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String("nodes"), Version: aws.String("$Latest")},
			NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{
				{DeviceIndex: aws.Int32(0), SubnetId: aws.String(w.subnets()["us-west-2b"])},
			},
			TagSpecifications: []ec2types.TagSpecification{tagged("instance", "a", "b"), tagged("volume", "c", "d")},
		}
	}
	tests := map[string]struct {
		change func(*ec2.RunInstancesInput)
		want   string
	}{
		"dry run": {func(in *ec2.RunInstancesInput) { in.DryRun = aws.Bool(true) }, "DryRunOperation"},
		"profile": {func(in *ec2.RunInstancesInput) {
			in.IamInstanceProfile = &ec2types.IamInstanceProfileSpecification{Name: aws.String("missing")}
			in.DryRun = aws.Bool(true)
		}, "InvalidParameterValue"},
		"template": {func(in *ec2.RunInstancesInput) { in.LaunchTemplate.LaunchTemplateName = aws.String("missing") }, "InvalidLaunchTemplateName.NotFoundException"},
		"counts":   {func(in *ec2.RunInstancesInput) { in.MinCount = aws.Int32(3) }, "InvalidParameterValue"},
		"group": {func(in *ec2.RunInstancesInput) {
			in.NetworkInterfaces[0].Groups = []string{"sg-00000000000000000"}
		}, "InvalidGroup.NotFound"},
		"image": {func(in *ec2.RunInstancesInput) { in.ImageId = aws.String("ami-00000000000000000") }, "InvalidAMIID.NotFound"},
		"subnet beside an interface": {func(in *ec2.RunInstancesInput) {
			in.SubnetId = aws.String(w.subnets()["us-west-2b"])
		}, "InvalidParameterCombination"},
	}
	for name, test := range tests {
		in := good()
		test.change(in)
		_, err := w.ec2.RunInstances(t.Context(), in)
		wantCode(t, name, err, test.want)
	}
	if n := len(w.sim.Instances()); n != 0 {
		t.Fatalf("%d instances from refused calls", n)
	}

	in := good()
	in.ClientToken = aws.String("once")
	out := must(w.ec2.RunInstances(t.Context(), in))(t)
	again := must(w.ec2.RunInstances(t.Context(), in))(t)
	if len(out.Instances) != 2 || *out.ReservationId != *again.ReservationId || len(w.sim.Instances()) != 2 {
		t.Errorf("launched %d, again %v; %d in all", len(out.Instances), *again.ReservationId, len(w.sim.Instances()))
	}
	i := w.describe(*out.Instances[0].InstanceId)
	if *i.Placement.AvailabilityZone != "us-west-2b" || *i.SecurityGroups[0].GroupId != w.groups()[0] {
		t.Errorf("the interface's subnet and the template's groups, got %s and %+v", *i.Placement.AvailabilityZone, i.SecurityGroups)
	}

	w.do(shortage(3, []string{"m5.large"}, "us-west-2b"))
	if out := must(w.ec2.RunInstances(t.Context(), good()))(t); len(out.Instances) != 1 {
		t.Errorf("%d launched with room for one of one to two", len(out.Instances))
	}
	_, err := w.ec2.RunInstances(t.Context(), good())
	wantCode(t, "sold out", err, "InsufficientInstanceCapacity")

	market := good()
	market.NetworkInterfaces[0].SubnetId = aws.String(w.subnets()["us-west-2c"])
	market.InstanceMarketOptions = &ec2types.InstanceMarketOptionsRequest{MarketType: "spot"}
	if out := must(w.ec2.RunInstances(t.Context(), market))(t); out.Instances[0].SpotInstanceRequestId == nil {
		t.Error("spot market without a spot request")
	}
}

func TestTags(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.template("nodes")
	in := w.fleetInput("nodes", spot, 1, offer{"m5.large", "us-west-2a"})
	in.TagSpecifications = append(in.TagSpecifications, tagged("volume", "kind", "volume"), tagged("fleet", "kind", "fleet"))
	out := w.fleet(in)
	id := out.Instances[0].InstanceIds[0]
	tag := func(key, value string) error {
		_, err := w.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: aws.String(key), Value: aws.String(value)}}})
		return err
	}
	if err := tag("Name", "one"); err != nil {
		t.Fatal(err)
	}
	if err := tag("Name", "two"); err != nil {
		t.Fatal(err)
	}
	tags := must(w.ec2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{filter("resource-id", id), filter("key", "Name")}}))(t).Tags
	if len(tags) != 1 || *tags[0].Value != "two" || tags[0].ResourceType != "instance" {
		t.Errorf("tags %+v, want one Name of value two", tags)
	}
	for _, kind := range []string{"volume", "fleet"} {
		got := must(w.ec2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{filter("resource-type", kind)}}))(t).Tags
		if len(got) != 1 || *got[0].Value != kind {
			t.Errorf("tags of the %s: %+v", kind, got)
		}
	}
	wantCode(t, "a reserved key", tag("aws:mine", "x"), "InvalidParameterValue")
	wantCode(t, "a long key", tag(strings.Repeat("k", 129), "x"), "InvalidParameterValue")
	wantCode(t, "a long value", tag("k", strings.Repeat("x", 257)), "InvalidParameterValue")
	_, err := w.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{"i-0123456789abcdef0"}, Tags: []ec2types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}})
	wantCode(t, "no such instance", err, "InvalidInstanceID.NotFound")
	var many []ec2types.Tag
	for n := range 50 {
		many = append(many, ec2types.Tag{Key: aws.String(fmt.Sprint("key", n)), Value: aws.String("x")})
	}
	_, err = w.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: many})
	wantCode(t, "too many tags", err, "TagLimitExceeded")
	must(w.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: aws.String("Name")}}}))(t)
	tags = must(w.ec2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{filter("resource-id", id), filter("key", "Name")}}))(t).Tags
	if len(tags) != 0 {
		t.Errorf("tags after deletion: %+v", tags)
	}
}

func TestCapacityReservations(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	reserve := func(count int32, criteria ec2types.InstanceMatchCriteria) string {
		t.Helper()
		out := must(w.ec2.CreateCapacityReservation(ctx, &ec2.CreateCapacityReservationInput{
			InstanceType: aws.String("m5.large"), InstancePlatform: "Linux/UNIX", AvailabilityZone: aws.String("us-west-2a"),
			InstanceCount: aws.Int32(count), InstanceMatchCriteria: criteria,
			TagSpecifications: []ec2types.TagSpecification{tagged("capacity-reservation", "team", "a")},
		}))(t)
		return *out.CapacityReservation.CapacityReservationId
	}
	id := reserve(2, ec2types.InstanceMatchCriteriaTargeted)
	available := func() int32 {
		t.Helper()
		out := must(w.ec2.DescribeCapacityReservations(ctx, &ec2.DescribeCapacityReservationsInput{
			Filters: []ec2types.Filter{filter("state", "active"), filter("tag:team", "a")},
		}))(t)
		if len(out.CapacityReservations) != 1 {
			t.Fatalf("%d reservations", len(out.CapacityReservations))
		}
		return *out.CapacityReservations[0].AvailableInstanceCount
	}
	data := &ec2types.RequestLaunchTemplateData{
		ImageId: aws.String(w.image("x86_64")),
		CapacityReservationSpecification: &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationTarget: &ec2types.CapacityReservationTarget{CapacityReservationId: aws.String(id)},
		},
	}
	must(w.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("reserved"), LaunchTemplateData: data}))(t)
	w.template("nodes")

	// Nothing is left on demand, but what is reserved is there.
	w.do(shortage(2, []string{"m5.large"}, "us-west-2a"))
	if out := w.fleet(w.fleetInput("nodes", onDemand, 1, offer{"m5.large", "us-west-2a"})); len(out.Instances) != 0 {
		t.Error("launched on demand out of a targeted reservation")
	}
	out := w.fleet(w.fleetInput("reserved", onDemand, 3, offer{"m5.large", "us-west-2a"}))
	if got := byType(out)["m5.large us-west-2a"]; got != 2 || len(out.Errors) != 1 || *out.Errors[0].ErrorCode != "ReservationCapacityExceeded" {
		t.Fatalf("launched %d with errors %v, want 2 and ReservationCapacityExceeded", got, errorCodes(out))
	}
	i := w.describe(out.Instances[0].InstanceIds[0])
	if aws.ToString(i.CapacityReservationId) != id || available() != 0 {
		t.Errorf("instance in reservation %q, %d left", aws.ToString(i.CapacityReservationId), available())
	}
	must(w.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: out.Instances[0].InstanceIds[:1]}))(t)
	w.clock.Advance(time.Minute)
	if got := available(); got != 1 {
		t.Errorf("%d left after a termination, want 1", got)
	}
	must(w.ec2.CancelCapacityReservation(ctx, &ec2.CancelCapacityReservationInput{CapacityReservationId: aws.String(id)}))(t)
	if i := w.describe(out.Instances[0].InstanceIds[1]); i.State.Name != "running" || i.CapacityReservationId != nil {
		t.Errorf("after cancellation the instance is %s in %q", i.State.Name, aws.ToString(i.CapacityReservationId))
	}

	// An open reservation is used without being named.
	w.sim.EndEffects()
	open := reserve(1, ec2types.InstanceMatchCriteriaOpen)
	got := w.launch(w.fleetInput("nodes", onDemand, 1, offer{"m5.large", "us-west-2a"}))
	if i := w.describe(got[0]); aws.ToString(i.CapacityReservationId) != open {
		t.Errorf("launched into %q, want the open reservation", aws.ToString(i.CapacityReservationId))
	}
}

func TestPlacementGroups(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	made := must(w.ec2.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{GroupName: aws.String("near"), Strategy: "cluster"}))(t)
	_, err := w.ec2.CreatePlacementGroup(ctx, &ec2.CreatePlacementGroupInput{GroupName: aws.String("near"), Strategy: "spread"})
	wantCode(t, "twice", err, "InvalidPlacementGroup.Duplicate")
	found := must(w.ec2.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{Filters: []ec2types.Filter{filter("state", "available"), filter("group-name", "near")}}))(t)
	if len(found.PlacementGroups) != 1 || *found.PlacementGroups[0].GroupId != *made.PlacementGroup.GroupId {
		t.Errorf("groups %+v", found.PlacementGroups)
	}
	run := func(typ ec2types.InstanceType, group string) (*ec2.RunInstancesOutput, error) {
		return w.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
			MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: typ, ImageId: aws.String(w.image("x86_64")),
			Placement: &ec2types.Placement{GroupName: aws.String(group)},
		})
	}
	_, err = run("m5.large", "far")
	wantCode(t, "unknown group", err, "InvalidPlacementGroup.Unknown")
	_, err = run("t3.micro", "near")
	wantCode(t, "a type that can't cluster", err, "InvalidParameterValue")
	out := must(run("m5.large", "near"))(t)
	if *out.Instances[0].Placement.GroupName != "near" {
		t.Errorf("placement %+v", out.Instances[0].Placement)
	}
	_, err = w.ec2.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{GroupName: aws.String("near")})
	wantCode(t, "delete while in use", err, "InvalidPlacementGroup.InUse")
	must(w.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*out.Instances[0].InstanceId}}))(t)
	w.clock.Advance(time.Minute)
	must(w.ec2.DeletePlacementGroup(ctx, &ec2.DeletePlacementGroupInput{GroupName: aws.String("near")}))(t)
}

func TestTerminateIsRepeatable(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	ids := w.launch(w.fleetInput("nodes", onDemand, 2, offer{"m5.large", "us-west-2a"}))
	in := &ec2.TerminateInstancesInput{InstanceIds: ids}
	first := must(w.ec2.TerminateInstances(t.Context(), in))(t)
	second := must(w.ec2.TerminateInstances(t.Context(), in))(t)
	if first.TerminatingInstances[0].PreviousState.Name != "pending" || second.TerminatingInstances[0].PreviousState.Name != "shutting-down" {
		t.Errorf("states %v then %v", first.TerminatingInstances[0], second.TerminatingInstances[0])
	}
	w.clock.Advance(time.Hour)
	var states []string
	for _, i := range w.sim.Instances() {
		states = append(states, i.State)
	}
	if !slices.Equal(states, []string{"terminated", "terminated"}) {
		t.Errorf("states %q; a boot must not undo a termination", states)
	}
}

func TestReboot(t *testing.T) {
	w := newWorld(t)
	w.template("nodes")
	ids := w.launch(w.fleetInput("nodes", onDemand, 2, offer{"m5.large", "us-west-2a"}))
	reboot := func(dry bool, ids ...string) error {
		_, err := w.ec2.RebootInstances(t.Context(), &ec2.RebootInstancesInput{InstanceIds: ids, DryRun: aws.Bool(dry)})
		return err
	}
	rebooting := func() (out []bool) {
		for _, i := range w.sim.Instances() {
			out = append(out, i.Rebooting)
		}
		return out
	}
	wantCode(t, "while pending", reboot(false, ids...), "IncorrectState")
	w.clock.Advance(time.Minute)
	wantCode(t, "beside an unknown one", reboot(false, ids[0], "i-0123456789abcdef0"), "InvalidInstanceID.NotFound")
	wantCode(t, "dry run", reboot(true, ids...), "DryRunOperation")
	if slices.Contains(rebooting(), true) {
		t.Errorf("refused, but rebooting: %v", rebooting())
	}
	w.do(ec2sim.Step{Impair: &ec2sim.Victims{IDs: ids[:1]}})
	must(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids[1:]}))(t)
	if err := reboot(false, ids...); err != nil || !slices.Equal(rebooting(), []bool{true, false}) {
		t.Errorf("of one that runs and one that ends: %v, rebooting %v", err, rebooting())
	}
	if i, _ := w.sim.Instance(ids[0]); i.State != ec2sim.StateRunning || i.Impaired {
		t.Errorf("while it reboots: %+v", i)
	}
	w.clock.Advance(30 * time.Second)
	if i, _ := w.sim.Instance(ids[0]); i.State != ec2sim.StateRunning || i.Rebooting {
		t.Errorf("after its boot: %+v", i)
	}
}
