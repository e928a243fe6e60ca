package ec2

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
)

func TestInstanceTypes(t *testing.T) {
	w := newWorld(t)
	p := w.fresh()
	if _, err := p.InstanceTypes(t.Context(), newClass()); err == nil {
		t.Error("a class that isn't resolved has instance types")
	}
	class := w.resolve(p, newClass())
	w.sim.ResetCounters()
	list, err := p.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := p.InstanceTypes(t.Context(), class)
	if &list[0] != &again[0] {
		t.Error("the list was made anew although nothing changed")
	}
	if n := len(w.sim.Counters()); n != 0 {
		t.Errorf("listing again called AWS: %+v", w.sim.Counters())
	}
	if len(list) < 400 {
		t.Errorf("only %d types", len(list))
	}
	if !slices.IsSortedFunc(list, func(a, b cloud.InstanceType) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("types aren't sorted by name")
	}
	zones := map[string]string{}
	for _, s := range class.Status.Subnets {
		zones[s.Zone] = s.ZoneID
	}
	for _, it := range list {
		facts, ok := w.sim.TypeInfo(it.Name)
		if !ok {
			t.Fatalf("%s isn't sold", it.Name)
		}
		if got := it.Capacity.Cpu().Value(); got != int64(facts.VCPU) {
			t.Errorf("%s has %d vCPUs, want %d", it.Name, got, facts.VCPU)
		}
		if got, most := it.Capacity.Memory().Value()>>20, facts.MemoryMiB; got >= most || got < most*92/100-64 {
			t.Errorf("%s has %d MiB of %d", it.Name, got, most)
		}
		for name, q := range it.Allocatable {
			have := it.Capacity[name]
			if q.Cmp(have) > 0 || q.Sign() < 0 {
				t.Errorf("%s: %s of %s of %s can be allocated", it.Name, q.String(), have.String(), name)
			}
		}
		if it.Labels[corev1.LabelInstanceTypeStable] != it.Name || it.Labels[corev1.LabelTopologyRegion] != "us-west-2" || it.Labels[aws.LabelInstanceNetworkBandwidth] == "" && facts.NetworkMbps > 0 {
			t.Errorf("%s: labels %v", it.Name, it.Labels)
		}
		if len(it.Offerings) == 0 {
			t.Errorf("%s has no offerings", it.Name)
		}
		byPrice := func(a, b cloud.Offering) int {
			return cmp.Or(cmp.Compare(a.MicroUSD, b.MicroUSD), strings.Compare(a.CapacityType, b.CapacityType), strings.Compare(a.Zone, b.Zone))
		}
		if !slices.IsSortedFunc(it.Offerings, byPrice) {
			t.Errorf("%s: offerings aren't sorted: %v", it.Name, it.Offerings)
		}
		for _, o := range it.Offerings {
			if o.MicroUSD <= 0 || zones[o.Zone] != o.ZoneID || !o.Available {
				t.Errorf("%s: offering %+v", it.Name, o)
			}
		}
	}
}

// A class narrows the types by what its images and its wishes need.
func TestInstanceTypesNarrowed(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	all := w.resolve(p, newClass())
	tests := map[string]struct {
		why    string
		change func(*aws.EC2NodeClass)
		has    string
		hasNot string
	}{
		"no arm image": {"an image runs on its architecture alone", func(c *aws.EC2NodeClass) {
			c.Status.AMIs = slices.DeleteFunc(c.Status.AMIs, func(a aws.AMI) bool { return strings.Contains(a.Name, "arm64") })
		}, "m5.large", "m7g.large"},
		"no gpu image": {"a type with a GPU needs the image with its driver", func(c *aws.EC2NodeClass) {
			c.Status.AMIs = slices.DeleteFunc(c.Status.AMIs, func(a aws.AMI) bool { return strings.Contains(a.Name, "nvidia") })
		}, "m5.large", "g5.xlarge"},
		"interfaces": {"a card must take as many interfaces as are asked for", func(c *aws.EC2NodeClass) {
			for n := range 4 {
				c.Spec.NetworkInterfaces = append(c.Spec.NetworkInterfaces, &aws.NetworkInterface{DeviceIndex: int32(n), InterfaceType: "interface"})
			}
		}, "m5.xlarge", "m5.large"},
		"connection tracking": {"only Nitro takes the timeouts", func(c *aws.EC2NodeClass) {
			c.Spec.ConnectionTracking = &aws.ConnectionTracking{UDPTimeout: new(int32(30))}
		}, "m5.large", "m4.large"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := all.DeepCopy()
			class.Name = name
			tt.change(class)
			list, err := p.InstanceTypes(t.Context(), class)
			if err != nil {
				t.Fatal(err)
			}
			has := func(n string) bool {
				return slices.ContainsFunc(list, func(i cloud.InstanceType) bool { return i.Name == n })
			}
			if !has(tt.has) || has(tt.hasNot) {
				t.Errorf("%s: %s is %t, %s is %t", tt.why, tt.has, has(tt.has), tt.hasNot, has(tt.hasNot))
			}
		})
	}
}

// What a node turned out to have is promised from then on, for its image alone.
func TestObserve(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	m5 := func() (capacity, allocatable int64) {
		t.Helper()
		it := w.request(p, class, w.claim("x"), []string{"m5.large"}, []string{"*"}).Types[0]
		return it.Capacity.Memory().Value() >> 20, it.Allocatable.Memory().Value() >> 20
	}
	list, _ := p.InstanceTypes(t.Context(), class)
	image := ""
	for _, it := range list {
		if it.Name == "m5.large" {
			image, _ = cloud.ImageFor(class.Status.AMIs, it.Labels)
		}
	}
	memory := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
	}
	for _, step := range []struct {
		image, memory string
		want          int64
	}{
		{"ami-other", "7900Mi", 7577}, {image, "8085000Ki", 7895}, {image, "7990Mi", 7895}, {image, "9000Mi", 7895}, {image, "7890Mi", 7890}, {image, "0", 7890},
	} {
		p.Observe("m5.large", step.image, memory(step.memory))
		if capacity, allocatable := m5(); capacity != step.want || allocatable != step.want-574-100 {
			t.Errorf("after a node with %s: %d MiB of which %d are allocatable, want %d", step.memory, capacity, allocatable, step.want)
		}
	}
	same, _ := p.InstanceTypes(t.Context(), class)
	p.Observe("m5.large", image, memory("7890Mi"))
	if again, _ := p.InstanceTypes(t.Context(), class); &same[0] != &again[0] {
		t.Error("seeing the same again made the list anew")
	}
}

func TestLaunch(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	claim := w.claim("1")
	req := w.request(p, class, claim, []string{"m5.large", "m5.xlarge", "c5.large"}, []string{"spot", "on-demand"})
	req.Labels["team"] = "a"
	req.Taints = []corev1.Taint{{Key: "dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
	w.sim.ResetCounters()
	got := w.launch(p, req)

	made := w.live()
	if len(made) != 1 {
		t.Fatalf("%d instances", len(made))
	}
	sim := made[0]
	if got.ID != sim.ID || got.ProviderID != "aws:///"+sim.Zone+"/"+sim.ID || got.Type != sim.Type || got.Zone != sim.Zone ||
		got.ZoneID != sim.ZoneID || got.CapacityType != sim.CapacityType || got.ImageID != sim.ImageID || got.SubnetID != sim.SubnetID ||
		!slices.Equal(got.SecurityGroupIDs, sim.SecurityGroupIDs) || got.Profile != class.Status.InstanceProfile {
		t.Errorf("launched %+v\nis %+v", got, sim)
	}
	if sim.CapacityType != "spot" {
		t.Errorf("%s was bought although spot was to be had", sim.CapacityType)
	}
	wantTags := map[string]string{
		"team": "a", "Name": "1", "karpenter.sh/nodepool": "general", "karpenter.k8s.aws/ec2nodeclass": "default",
		"karpenter.sh/nodeclaim": "1", "coppice.dev/nodeclaim-uid": string(claim.UID),
		"eks:eks-cluster-name": "demo", "kubernetes.io/cluster/demo": "owned",
	}
	tags := map[string]string{}
	for k, v := range sim.Tags {
		if !strings.HasPrefix(k, "aws:") {
			tags[k] = v
		}
	}
	if diff := gocmp.Diff(wantTags, tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(wantTags, got.Tags); diff != "" {
		t.Errorf("tags of the result (-want +got):\n%s", diff)
	}
	for _, text := range []string{
		"apiServerEndpoint: https://127.0.0.1:6443", "certificateAuthority: UEVN", "cidr: 10.96.0.0/16", "name: demo", "maxPods: 29",
		`--node-labels="karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=spot,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=general,team=a"`,
		"key: dedicated", "key: karpenter.sh/unregistered",
	} {
		if !strings.Contains(string(sim.UserData), text) {
			t.Errorf("user data lacks %q:\n%s", text, sim.UserData)
		}
	}
	if n := w.calls("ec2:CreateFleet"); n != 1 {
		t.Errorf("%d fleets", n)
	}

	// A second claim needs no further template, and the list shows both at once.
	w.sim.ResetCounters()
	second := w.request(p, class, w.claim("2"), []string{"m5.large", "m5.xlarge", "c5.large"}, []string{"spot", "on-demand"})
	second.Labels["team"], second.Taints = "a", req.Taints
	w.launch(p, second)
	for action, want := range map[string]int{
		"ec2:CreateFleet": 1, "ec2:CreateLaunchTemplate": 0, "ec2:DescribeLaunchTemplates": 0, "ec2:DescribeInstances": 0, "ec2:DescribeSubnets": 0,
	} {
		if n := w.calls(action); n != want {
			t.Errorf("the second launch called %s %d times, want %d", action, n, want)
		}
	}
	list, err := p.Instances(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("%d instances are listed, %v", len(list), err)
	}
}

// A token launches once: in the same process, at the same time, and after a crash.
func TestLaunchIsRepeatable(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.ConsistencyDelay = 5 * time.Second })
	p := w.provider()
	class := w.resolve(p, newClass())
	w.clock.Advance(2 * time.Minute)
	claim := w.claim("1")
	req := w.request(p, class, claim, []string{"m5.*"}, []string{"on-demand"})

	var wg sync.WaitGroup
	ids := make([]string, 20)
	for i := range ids {
		wg.Go(func() {
			got, err := p.Launch(t.Context(), req)
			if err != nil {
				t.Error(err)
			}
			ids[i] = got.ID
		})
	}
	wg.Wait()
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) != 1 || len(w.live()) != 1 {
		t.Fatalf("one token launched %v, and %d instances run", ids, len(w.live()))
	}

	// The next process has other prices in mind and can't see the instance yet. Then
	// EC2's token is all that keeps it from launching again.
	next := w.provider()
	changed := w.request(next, class, claim, []string{"m5.*", "c5.*"}, []string{"spot", "on-demand"})
	if _, err := next.Launch(t.Context(), changed); err == nil || errors.As(err, new(*cloud.TerminalError)) {
		t.Errorf("while the instance can't be seen: %v", err)
	}
	// The same request gets the same answer.
	if got := w.launch(w.provider(), req); got.ID != ids[0] {
		t.Errorf("the same request launched %s, not %s", got.ID, ids[0])
	}
	w.clock.Advance(5 * time.Second)
	if got := w.launch(next, changed); got.ID != ids[0] {
		t.Errorf("once it can be seen the token finds %s, not %s", got.ID, ids[0])
	}
	// A process that starts later finds it without a fleet.
	w.sim.ResetCounters()
	later := w.provider()
	if got := w.launch(later, w.request(later, class, claim, []string{"c5.*"}, []string{"spot"})); got.ID != ids[0] || w.calls("ec2:CreateFleet") != 0 {
		t.Errorf("a later process got %s with %d fleets", got.ID, w.calls("ec2:CreateFleet"))
	}
	if n := len(w.live()); n != 1 {
		t.Errorf("%d instances run", n)
	}
}

// A token whose fleet launched nothing, or whose instance is gone, isn't stuck.
func TestLaunchAfterAnEmptyFleet(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.clock.Advance(2 * time.Minute)
	claim := w.claim("1")
	first := w.launch(p, w.request(p, class, claim, []string{"m5.large"}, []string{"on-demand"}))
	w.do(ec2sim.Step{Terminate: &ec2sim.Victims{IDs: []string{first.ID}}})
	w.clock.Advance(time.Minute)

	next := w.provider()
	req := w.request(next, class, claim, []string{"c5.large"}, []string{"on-demand"})
	for range 2 {
		if _, err := next.Launch(t.Context(), req); err == nil {
			t.Fatal("the token launched again although EC2 said that it was used")
		}
		w.clock.Advance(visibleWithin)
	}
	if got := w.launch(next, req); got.ID == first.ID || len(w.live()) != 1 {
		t.Errorf("launched %s, %d run", got.ID, len(w.live()))
	}
}

// Launches right after a start look for a predecessor's instances in one list.
func TestLaunchesAfterAStartShareAList(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.sim.ResetCounters()
	for n := range 8 {
		w.launch(p, w.request(p, class, w.claim(fmt.Sprint(n)), []string{"m5.large"}, []string{"on-demand"}))
		w.clock.Advance(time.Second)
	}
	if n := w.calls("ec2:DescribeInstances"); n != 1 {
		t.Errorf("8 launches took %d lists", n)
	}
}

func TestLaunchShortage(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.do(ec2sim.Step{For: ec2sim.Duration(time.Hour), Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"m5.large"}, CapacityTypes: []string{"spot"}}}})
	req := w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"spot"})
	w.sim.ResetCounters()
	_, err := p.Launch(t.Context(), req)
	var short *cloud.InsufficientCapacityError
	if !errors.As(err, &short) || short.Offerings != 4 || short.Reason != "InsufficientInstanceCapacity" {
		t.Fatalf("error is %v", err)
	}
	if n := w.calls("ec2:CreateFleet"); n != 1 {
		t.Errorf("%d fleets were tried", n)
	}
	available := func() (spot, onDemand int) {
		for _, o := range w.request(p, class, w.claim("x"), []string{"m5.large"}, []string{"*"}).Types[0].Offerings {
			if o.Available && o.CapacityType == "spot" {
				spot++
			} else if o.Available {
				onDemand++
			}
		}
		return spot, onDemand
	}
	if spot, onDemand := available(); spot != 0 || onDemand != 4 {
		t.Errorf("%d spot and %d on-demand offerings are available", spot, onDemand)
	}
	// What is known to be out isn't asked for.
	w.sim.ResetCounters()
	if _, err := p.Launch(t.Context(), w.request(p, class, w.claim("2"), []string{"m5.large"}, []string{"spot"})); !errors.As(err, &short) || w.calls("ec2:CreateFleet") != 0 {
		t.Errorf("error is %v after %d fleets", err, w.calls("ec2:CreateFleet"))
	}
	// On-demand takes over within one launch, though the request's list is older than the shortage.
	req = w.request(p, class, w.claim("3"), []string{"m5.large"}, []string{"spot", "on-demand"})
	for i := range req.Types[0].Offerings {
		req.Types[0].Offerings[i].Available = true
	}
	if got := w.launch(p, req); got.CapacityType != "on-demand" {
		t.Errorf("launched %s", got.CapacityType)
	}
	w.sim.EndEffects()
	w.clock.Advance(unavailableFor)
	if spot, _ := available(); spot != 4 {
		t.Errorf("after %s %d spot offerings are available", unavailableFor, spot)
	}
}

// When spot runs dry during a launch, the same launch goes on with on-demand; a
// partial shortage is remembered though the launch succeeds.
func TestLaunchFallsBack(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.do(ec2sim.Step{For: ec2sim.Duration(time.Hour), Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: []string{"m5.*", "c5.*"}, CapacityTypes: []string{"spot"}}}})
	w.sim.ResetCounters()
	got := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.*", "c5.*"}, []string{"spot", "on-demand"}))
	if got.CapacityType != "on-demand" || w.calls("ec2:CreateFleet") != 2 || len(w.live()) != 1 {
		t.Errorf("launched %s with %d fleets, %d run", got.CapacityType, w.calls("ec2:CreateFleet"), len(w.live()))
	}
	if !strings.Contains(string(w.live()[0].UserData), "karpenter.sh/capacity-type=on-demand") {
		t.Error("the node thinks that it is spot")
	}
}

func TestLaunchErrors(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	req := w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"})

	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:CreateFleet"}, Code: "UnauthorizedOperation"}})
	_, err := p.Launch(t.Context(), req)
	if !errors.As(err, new(*cloud.TerminalError)) || strings.Contains(err.Error(), "RequestID") || !strings.HasPrefix(err.Error(), "launch 1: create fleet: UnauthorizedOperation") {
		t.Errorf("missing rights: %v", err)
	}
	w.sim.EndEffects()
	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:CreateFleet"}, Code: "RequestLimitExceeded", Count: 2}})
	if got := w.launch(p, req); got.ID == "" || len(w.live()) != 1 {
		t.Errorf("after two throttled calls: %+v, %d run", got, len(w.live()))
	}
	// A template that somebody deleted is made again by the next attempt.
	if err := p.deleteTemplates(t.Context(), class, all); err != nil {
		t.Fatal(err)
	}
	other := w.request(p, class, w.claim("2"), []string{"m5.large"}, []string{"on-demand"})
	q := w.provider()
	w.launch(q, w.request(q, w.resolve(q, newClass()), w.claim("3"), []string{"m5.large"}, []string{"on-demand"}))
	if err := p.deleteTemplates(t.Context(), class, all); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Launch(t.Context(), other); err == nil || !strings.Contains(err.Error(), "NotFound") || errors.As(err, new(*cloud.TerminalError)) {
		t.Errorf("with a deleted template: %v", err)
	}
	w.launch(q, other)
}

// Nothing is launched into full subnets, and where there are several the emptier.
func TestLaunchSpreadsOverSubnets(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	found, err := p.findSubnets(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	zone := *found[0].AvailabilityZone
	twin := found[0]
	twin.SubnetId, twin.AvailableIpAddressCount = new("subnet-zzz"), new(*twin.AvailableIpAddressCount-5)
	pair := append(slices.Clone(found), twin)
	if got := subnetByZone(pair, nil, shortages{})[zone]; got != *found[0].SubnetId {
		t.Errorf("%s was chosen, which has fewer addresses", got)
	}
	if got := subnetByZone(pair, map[string]int{*found[0].SubnetId: 10}, shortages{})[zone]; got != "subnet-zzz" {
		t.Errorf("%s was chosen, whose addresses were just taken", got)
	}
	if got := subnetByZone(pair, nil, shortages{subnets: map[string]bool{*found[0].SubnetId: true}})[zone]; got != "subnet-zzz" {
		t.Errorf("%s was chosen, which is full", got)
	}
	for _, s := range found {
		p.unavailable.markSubnet(*s.SubnetId, w.clock.Now())
	}
	var short *cloud.InsufficientCapacityError
	if _, err := p.Launch(t.Context(), w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"})); !errors.As(err, &short) || short.Reason != codeNoAddresses {
		t.Errorf("with every subnet full: %v", err)
	}
}

// When EC2 refuses the whole call for want of capacity, it is as if every override had.
func TestLaunchRefusedAsAWhole(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:CreateFleet"}, Code: codeNoSpotRole, Count: 1}})
	got := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"spot", "on-demand"}))
	if got.CapacityType != cloud.OnDemand {
		t.Errorf("launched %s although the account may not use spot", got.CapacityType)
	}
	for _, o := range w.request(p, class, w.claim("2"), []string{"c5.large"}, []string{"*"}).Types[0].Offerings {
		if o.Available != (o.CapacityType == cloud.OnDemand) {
			t.Errorf("of another type: %+v", o)
		}
	}
}

// A zone whose subnets are all full is offered again when they may have room.
func TestFullZoneIsNotOffered(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	full := class.Status.Subnets[0]
	offered := func() map[bool]int {
		t.Helper()
		out := map[bool]int{}
		for _, o := range w.request(p, class, w.claim("x"), []string{"m5.large"}, []string{"*"}).Types[0].Offerings {
			if o.Zone == full.Zone {
				out[o.Available]++
			} else if !o.Available {
				t.Errorf("%+v isn't available", o)
			}
		}
		return out
	}
	if got := offered(); got[true] != 2 || got[false] != 0 {
		t.Fatalf("at first the zone is offered as %v", got)
	}
	before := w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"*"})
	p.unavailable.markSubnet(full.ID, w.clock.Now())
	if got := offered(); got[true] != 0 || got[false] != 2 {
		t.Errorf("once its subnet is full the zone is offered as %v", got)
	}
	// Whoever decided before that gets another zone.
	if i := w.launch(p, before); i.Zone == full.Zone {
		t.Errorf("launched in %s, which is full", i.Zone)
	}
	w.clock.Advance(unavailableFor)
	if got := offered(); got[true] != 2 {
		t.Errorf("later the zone is offered as %v", got)
	}
}
