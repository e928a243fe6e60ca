package ec2

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Where IAM isn't asked, EC2's word on a profile that a class names is final.
func TestNamedProfileUnknownToEC2(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.IsolatedVPC = true })
	class := newClass()
	class.Spec.Role, class.Spec.InstanceProfile = "", new("node")
	w.resolve(p, class)
	class.Spec.InstanceProfile, class.Generation = new("nope"), 2
	status, err := p.ResolveClass(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	if got := conditionsText(status.Conditions); !strings.Contains(got, "ValidationSucceeded=False InvalidParameterValue: ") || !strings.Contains(got, "Invalid IAM Instance Profile") {
		t.Errorf("conditions are\n%s", got)
	}
	if n := w.calls("iam:GetInstanceProfile"); n != 0 {
		t.Errorf("IAM was asked %d times from an isolated network", n)
	}
	class.Status.InstanceProfile = "nope"
	_, err = p.Launch(t.Context(), w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	if !errors.As(err, new(*cloud.TerminalError)) {
		t.Errorf("the launch failed with %v, want an error for good", err)
	}
}

// A profile of ours that somebody deleted is made again once a launch has met that.
func TestOwnProfileDeleted(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	name := &class.Status.InstanceProfile
	if _, err := p.iam.RemoveRoleFromInstanceProfile(t.Context(), &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: &class.Spec.Role}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.iam.DeleteInstanceProfile(t.Context(), &iam.DeleteInstanceProfileInput{InstanceProfileName: name}); err != nil {
		t.Fatal(err)
	}
	req := w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand})
	if _, err := p.Launch(t.Context(), req); err == nil || errors.As(err, new(*cloud.TerminalError)) {
		t.Fatalf("the launch failed with %v, want an error that may pass", err)
	}
	w.resolve(p, class)
	w.clock.Advance(time.Minute) // EC2 learns of it
	w.launch(p, req)
}

// A class with as many tags as fit launches.
func TestTagsThatFit(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := newClass()
	for n := len(class.Spec.Tags); n < maxTags-7; n++ {
		class.Spec.Tags[fmt.Sprint("t", n)] = "x"
	}
	w.resolve(p, class)
	made := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	if n := len(made.Tags); n != maxTags {
		t.Errorf("the instance has %d tags, want %d", n, maxTags)
	}
}

// Of many reservations a fleet chooses among the few with most left.
func TestManyReservations(t *testing.T) {
	types := make([]cloud.InstanceType, 58)
	for n := range types {
		types[n] = cloud.InstanceType{Name: fmt.Sprintf("m%02d.large", n), Offerings: []cloud.Offering{{
			CapacityType: cloud.Reserved, Zone: "a", Available: true, ReservationID: fmt.Sprint("cr-", n), ReservedCount: 1 + n%29,
		}}}
	}
	plan := planFleet(&karpenter.NodeClaim{}, newClass(), types, shortages{})
	var got []int
	for _, c := range plan.candidates {
		got = append(got, c.left)
	}
	if want := []int{25, 26, 27, 28, 29, 25, 26, 27, 28, 29}; !slices.Equal(got, want) {
		t.Errorf("a fleet chooses from reservations with %v left, want %v", got, want)
	}
}

// A parameter of the class's own is asked for as often as images are, one that is
// missing after a minute, Amazon's not for an hour.
func TestParametersAge(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	const amazons = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id"
	for _, tt := range []struct {
		name  string
		after time.Duration
		want  int
	}{{amazons, 50 * time.Minute, 0}, {amazons, 10 * time.Minute, 1}, {"/aws/service/none", 30 * time.Second, 0}, {"/aws/service/none", time.Minute, 1}, {"/golden", time.Minute, 1}} {
		if _, err := p.parameter(t.Context(), tt.name); err != nil {
			t.Fatal(err)
		}
		before := w.calls("ssm:GetParameter")
		w.clock.Advance(tt.after)
		if _, err := p.parameter(t.Context(), tt.name); err != nil {
			t.Fatal(err)
		}
		if n := w.calls("ssm:GetParameter") - before; n != tt.want {
			t.Errorf("%s was read %d times after %s, want %d", tt.name, n, tt.after, tt.want)
		}
	}
}

// What a class lists as its interfaces decides which nodes have an EFA to offer.
func TestListedInterfaces(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	primary := &aws.NetworkInterface{InterfaceType: aws.InterfaceTypeInterface}
	efa := &aws.NetworkInterface{DeviceIndex: 1, InterfaceType: aws.InterfaceTypeEFAOnly}
	for name, tt := range map[string]struct {
		list []*aws.NetworkInterface
		efas int64
		pods int64
	}{
		"none":     {nil, 1, 737}, // 15 interfaces of 50 addresses
		"one":      {[]*aws.NetworkInterface{primary}, 0, 737},
		"with EFA": {[]*aws.NetworkInterface{primary, efa}, 1, 688},
	} {
		class := newClass()
		class.Spec.NetworkInterfaces = tt.list
		req := w.request(p, w.resolve(p, class), w.claim("1"), []string{"c5n.18xlarge"}, []string{cloud.OnDemand})
		if len(req.Types) != 1 {
			t.Fatalf("%s: no c5n.18xlarge", name)
		}
		efas, pods := req.Types[0].Capacity[aws.ResourceEFA], req.Types[0].Capacity[corev1.ResourcePods]
		if efas.Value() != tt.efas || pods.Value() != tt.pods {
			t.Errorf("%s: a node has %s EFAs and %s pods, want %d and %d", name, efas.String(), pods.String(), tt.efas, tt.pods)
		}
	}
}
