package ec2sim_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// began is when the manual clocks of these tests start.
var began = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a simulator on loopback with a clock that stands still, and clients
// of the real SDK.
type world struct {
	t     *testing.T
	sim   *ec2sim.Server
	clock *ec2sim.ManualClock
	url   string
	aws   aws.Config
	ec2   *ec2.Client
}

// newWorld starts a simulator; change may alter its configuration.
func newWorld(t *testing.T, change ...func(*ec2sim.Config)) *world {
	t.Helper()
	clock := ec2sim.NewManualClock(began)
	cfg := ec2sim.Config{
		Region: "us-west-2", Clock: clock, Seed: 1,
		Clusters:         []ec2sim.Cluster{{Name: "demo", Endpoint: "https://127.0.0.1:6443", CA: []byte("PEM")}},
		BootDelay:        30 * time.Second,
		ShutdownDelay:    20 * time.Second,
		InstanceProfiles: []string{"node"},
		Queues:           []string{"interruptions"},
	}
	for _, f := range change {
		f(&cfg)
	}
	sim, err := ec2sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(func() { sim.Close(); srv.Close() })
	w := &world{t: t, sim: sim, clock: clock, url: srv.URL}
	w.aws = w.client("AKIDEXAMPLE", "secret", cfg.Region)
	w.ec2 = ec2.NewFromConfig(w.aws)
	return w
}

// client makes an SDK configuration that tries each call once, but for a broken
// connection: see the comment on the simulator's latency.
func (w *world) client(key, secret, region string) aws.Config {
	w.t.Helper()
	c, err := config.LoadDefaultConfig(w.t.Context(),
		config.WithRegion(region),
		config.WithBaseEndpoint(w.url),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(key, secret, "")),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.Retryables = []retry.IsErrorRetryable{retry.RetryableConnectionError{}}
			})
		}),
		config.WithEC2IMDSClientEnableState(1),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// wantCode fails the test unless err is an API error with the code.
func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var api smithy.APIError
	switch {
	case err == nil:
		t.Errorf("%s: no error, want %s", what, code)
	case !errors.As(err, &api):
		t.Errorf("%s: %v, want API error %s", what, err, code)
	case api.ErrorCode() != code:
		t.Errorf("%s: %s (%s), want %s", what, api.ErrorCode(), api.ErrorMessage(), code)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// image returns the newest standard image of an architecture.
func (w *world) image(arch string) string {
	w.t.Helper()
	out := must(w.ec2.DescribeImages(w.t.Context(), &ec2.DescribeImagesInput{
		Filters: []ec2types.Filter{filter("name", "amazon-eks-node-al2023-"+arch+"-standard-1.37-v*")},
	}))(w.t)
	newest := out.Images[0]
	for _, img := range out.Images {
		if *img.CreationDate > *newest.CreationDate {
			newest = img
		}
	}
	return *newest.ImageId
}

// groups returns the security groups for nodes.
func (w *world) groups() []string {
	w.t.Helper()
	out := must(w.ec2.DescribeSecurityGroups(w.t.Context(), &ec2.DescribeSecurityGroupsInput{
		Filters: []ec2types.Filter{filter("tag:karpenter.sh/discovery", "true")},
	}))(w.t)
	var ids []string
	for _, g := range out.SecurityGroups {
		ids = append(ids, *g.GroupId)
	}
	return ids
}

// subnets returns the node subnets by zone name.
func (w *world) subnets() map[string]string {
	w.t.Helper()
	out := must(w.ec2.DescribeSubnets(w.t.Context(), &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{filter("tag-key", "kubernetes.io/cluster/demo")},
	}))(w.t)
	ids := map[string]string{}
	for _, s := range out.Subnets {
		ids[*s.AvailabilityZone] = *s.SubnetId
	}
	return ids
}

// template makes a launch template the way a node provisioner does.
func (w *world) template(name string) string {
	w.t.Helper()
	out := must(w.ec2.CreateLaunchTemplate(w.t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(name),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId:            aws.String(w.image("x86_64")),
			UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte("hello"))),
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("node")},
			NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
				{DeviceIndex: aws.Int32(0), Groups: w.groups()},
			},
			BlockDeviceMappings: []ec2types.LaunchTemplateBlockDeviceMappingRequest{{
				DeviceName: aws.String("/dev/xvda"),
				Ebs:        &ec2types.LaunchTemplateEbsBlockDeviceRequest{VolumeSize: aws.Int32(20), VolumeType: "gp3", Encrypted: aws.Bool(true)},
			}},
			MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required", HttpPutResponseHopLimit: aws.Int32(1)},
		},
		TagSpecifications: []ec2types.TagSpecification{tagged("launch-template", "eks:eks-cluster-name", "demo")},
	}))(w.t)
	return *out.LaunchTemplate.LaunchTemplateId
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

func tagged(kind ec2types.ResourceType, pairs ...string) ec2types.TagSpecification {
	spec := ec2types.TagSpecification{ResourceType: kind}
	for n := 0; n < len(pairs); n += 2 {
		spec.Tags = append(spec.Tags, ec2types.Tag{Key: aws.String(pairs[n]), Value: aws.String(pairs[n+1])})
	}
	return spec
}

// offer is one override.
type offer struct{ typ, zone string }

// fleetInput asks for n instances out of a launch template.
func (w *world) fleetInput(template string, capacityType ec2types.DefaultTargetCapacityType, n int32, offers ...offer) *ec2.CreateFleetInput {
	w.t.Helper()
	subnets := w.subnets()
	in := &ec2.CreateFleetInput{
		Type: ec2types.FleetTypeInstant,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			DefaultTargetCapacityType: capacityType, TotalTargetCapacity: aws.Int32(n),
		},
		LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateName: aws.String(template), Version: aws.String("$Latest"),
			},
		}},
		TagSpecifications: []ec2types.TagSpecification{tagged("instance", "karpenter.sh/nodepool", "default", "eks:eks-cluster-name", "demo")},
	}
	if capacityType == ec2types.DefaultTargetCapacityTypeSpot {
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
	} else {
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice}
	}
	for _, o := range offers {
		in.LaunchTemplateConfigs[0].Overrides = append(in.LaunchTemplateConfigs[0].Overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(o.typ), SubnetId: aws.String(subnets[o.zone]), AvailabilityZone: aws.String(o.zone),
		})
	}
	return in
}

// fleet makes a fleet. It passes a copy, as the SDK would leave the token that it
// makes up in the input.
func (w *world) fleet(in *ec2.CreateFleetInput) *ec2.CreateFleetOutput {
	w.t.Helper()
	fresh := *in
	return must(w.ec2.CreateFleet(w.t.Context(), &fresh))(w.t)
}

// launch runs a fleet and returns the IDs of what it launched.
func (w *world) launch(in *ec2.CreateFleetInput) []string {
	w.t.Helper()
	var ids []string
	for _, i := range w.fleet(in).Instances {
		ids = append(ids, i.InstanceIds...)
	}
	return ids
}

// describe returns one instance as DescribeInstances tells it.
func (w *world) describe(id string) ec2types.Instance {
	w.t.Helper()
	out := must(w.ec2.DescribeInstances(w.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}))(w.t)
	return out.Reservations[0].Instances[0]
}

func TestLaunchToTermination(t *testing.T) {
	w := newWorld(t)
	w.template("karpenter.k8s.aws/1")
	states := make(chan ec2sim.Instance, 16)
	stop := w.sim.Watch(func(i ec2sim.Instance) { states <- i })
	defer stop()
	next := func(want string) ec2sim.Instance {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		select {
		case i := <-states:
			if i.State != want {
				t.Fatalf("state %s, want %s", i.State, want)
			}
			return i
		case <-ctx.Done():
			t.Fatalf("no state %s came", want)
		}
		return ec2sim.Instance{}
	}

	ids := w.launch(w.fleetInput("karpenter.k8s.aws/1", ec2types.DefaultTargetCapacityTypeSpot, 1, offer{"m5.large", "us-west-2a"}))
	if len(ids) != 1 {
		t.Fatalf("launched %q, want one", ids)
	}
	i := next(ec2sim.StatePending)
	if string(i.UserData) != "hello" || i.ID != ids[0] || i.Zone != "us-west-2a" || i.CapacityType != ec2sim.Spot {
		t.Errorf("pending instance %+v", i)
	}
	w.clock.Advance(29 * time.Second)
	if got := w.describe(ids[0]); got.State.Name != "pending" {
		t.Errorf("state before the boot delay: %s", got.State.Name)
	}
	w.clock.Advance(time.Second)
	next(ec2sim.StateRunning)
	got := w.describe(ids[0])
	if got.State.Name != "running" || got.SpotInstanceRequestId == nil || *got.Placement.AvailabilityZone != "us-west-2a" || len(got.SecurityGroups) != 1 || len(got.Tags) < 2 {
		t.Errorf("running instance %+v", got)
	}
	if _, err := w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil {
		t.Fatal(err)
	}
	next(ec2sim.StateShuttingDown)
	w.clock.Advance(20 * time.Second)
	next(ec2sim.StateTerminated)
	if got := w.describe(ids[0]); got.State.Name != "terminated" {
		t.Errorf("state after the end: %s", got.State.Name)
	}
	w.clock.Advance(2 * time.Hour)
	_, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: ids})
	wantCode(t, "describe long after the end", err, "InvalidInstanceID.NotFound")
}
