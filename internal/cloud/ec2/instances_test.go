package ec2

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
)

func all(ec2types.LaunchTemplate) bool { return true }

func TestInstancesAndTerminate(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.ConsistencyDelay = 10 * time.Second })
	p := w.provider()
	class := w.resolve(p, newClass())
	var ids []string
	for n := range 8 {
		got := w.launch(p, w.request(p, class, w.claim(fmt.Sprint(n)), []string{"m5.large", "c5.large"}, []string{"spot", "on-demand"}))
		ids = append(ids, got.ID)
	}
	slices.Sort(ids)
	listed := func() (out []string, states map[string]int) {
		t.Helper()
		list, err := p.Instances(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		states = map[string]int{}
		for _, i := range list {
			out = append(out, i.ID)
			states[i.State]++
		}
		return out, states
	}
	if got, states := listed(); !slices.Equal(got, ids) || states["pending"] != 8 {
		t.Errorf("before EC2 shows them: %v, %v", got, states)
	}
	w.clock.Advance(31 * time.Second)
	if got, states := listed(); !slices.Equal(got, ids) || states["running"] != 8 {
		t.Errorf("once they run: %v, %v", got, states)
	}
	list, _ := p.Instances(t.Context())
	for _, i := range list {
		sim, _ := w.sim.Instance(i.ID)
		if i.Zone != sim.Zone || i.ZoneID != sim.ZoneID || i.CapacityType != sim.CapacityType || i.SubnetID != sim.SubnetID || i.ImageID != sim.ImageID ||
			!slices.Equal(i.SecurityGroupIDs, sim.SecurityGroupIDs) || i.Tags[cloud.TagNodeClaimUID] == "" || !i.LaunchTime.Equal(sim.LaunchTime) || i.Profile != class.Status.InstanceProfile {
			t.Errorf("listed %+v\nis %+v", i, sim)
		}
	}

	// One call ends those that end together, another's mistake doesn't save them.
	w.sim.ResetCounters()
	var wg sync.WaitGroup
	for _, id := range append(slices.Clone(ids[:6]), ids[0]) {
		wg.Go(func() {
			if err := p.Terminate(t.Context(), id); err != nil {
				t.Errorf("terminate %s: %v", id, err)
			}
		})
	}
	wg.Wait()
	if n := w.calls("ec2:TerminateInstances"); n != 1 {
		t.Errorf("6 instances were ended by %d calls", n)
	}
	if err := p.Terminate(t.Context(), ids[0]); err != nil || w.calls("ec2:TerminateInstances") != 1 {
		t.Errorf("an instance that is ending was ended again: %v", err)
	}
	if got, states := listed(); len(got) != 8 || states["shutting-down"] != 6 || states["running"] != 2 {
		t.Errorf("right after: %v", states)
	}
	for _, id := range []string{ids[6], "i-0123456789abcdef0", ids[7]} {
		wg.Go(func() {
			if err := p.Terminate(t.Context(), id); err != nil {
				t.Errorf("terminate %s beside one that is unknown: %v", id, err)
			}
		})
	}
	wg.Wait()
	w.clock.Advance(time.Minute)
	if got, states := listed(); len(got) != 0 {
		t.Errorf("after a minute: %v", states)
	}
	if n := len(w.live()); n != 0 {
		t.Errorf("%d instances still run", n)
	}
	if err := p.Terminate(t.Context(), ids[3]); err != nil {
		t.Errorf("an instance that is gone: %v", err)
	}
}

// An instance that EC2 doesn't know yet isn't taken for one that is gone.
func TestTerminateRightAfterTheLaunch(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.ConsistencyDelay = 10 * time.Second })
	p := w.provider()
	class := w.resolve(p, newClass())
	got := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"spot"}))
	if err := p.Terminate(t.Context(), got.ID); err == nil {
		t.Error("an instance that nobody ended is said to be gone")
	}
	w.clock.Advance(10 * time.Second)
	if err := p.Terminate(t.Context(), got.ID); err != nil {
		t.Error(err)
	}
	w.clock.Advance(time.Minute)
	if n := len(w.live()); n != 0 {
		t.Errorf("%d instances run", n)
	}
}

// Many who wait cost one call in two seconds.
func TestInstancesAreShared(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	for range 3 {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := p.Instances(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.clock.Advance(listTTL - time.Millisecond)
	}
	if n := w.calls("ec2:DescribeInstances"); n != 2 {
		t.Errorf("150 questions in four seconds cost %d calls", n)
	}
}

func TestOtherClustersAreNotOurs(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) {
		c.Clusters = append(c.Clusters, ec2sim.Cluster{Name: "other", Endpoint: "https://127.0.0.1:1", Version: "1.33"})
	})
	p, q := w.provider(), w.provider(func(c *Config) { c.ClusterName = "other" })
	class := w.resolve(q, newClass())
	w.launch(q, w.request(q, class, w.claim("1"), []string{"m5.large"}, []string{"spot"}))
	w.clock.Advance(time.Minute)
	if list, err := p.Instances(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("another cluster's instances are ours: %+v, %v", list, err)
	}
}

func TestDrifted(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	claim := w.claim("1")
	got := w.launch(p, w.request(p, class, claim, []string{"m5.large"}, []string{"spot"}))
	claim.Status.ProviderID = got.ProviderID
	claim.Annotations = map[string]string{aws.AnnotationEC2NodeClassHash: class.Hash(), aws.AnnotationEC2NodeClassHashVersion: aws.EC2NodeClassHashVersion}
	list, err := p.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range list {
		if it.Name == got.Type {
			maps.Copy(claim.Labels, it.Labels)
		}
	}
	check := func(what, want string) {
		t.Helper()
		if got, err := p.Drifted(t.Context(), class, claim); got != want || err != nil {
			t.Errorf("%s: drift is %q (%v), want %q", what, got, err, want)
		}
	}
	w.sim.ResetCounters()
	check("right after the launch", "")
	if n := w.calls("ec2:DescribeInstances"); n != 0 {
		t.Errorf("what the launch has just answered was asked again by %d calls", n)
	}
	w.clock.Advance(visibleWithin)
	w.sim.ResetCounters()
	for range 100 {
		check("as EC2 describes it", "")
	}
	if n := w.calls("ec2:DescribeInstances"); n > 1 {
		t.Errorf("100 questions cost %d calls", n)
	}
	for i := range class.Status.AMIs {
		class.Status.AMIs[i].ID += "0"
	}
	check("another image", cloud.AMIDrift)
	claim.Status.ProviderID = "aws:///us-west-2a/i-0123456789abcdef0"
	check("an instance that is gone", "")
}

func TestTag(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	got := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"spot"}))
	if err := p.Tag(t.Context(), got.ID, map[string]string{"karpenter.sh/nodeclaim": "1"}); err != nil || w.calls("ec2:CreateTags") != 0 {
		t.Errorf("a tag that is there cost %d calls, %v", w.calls("ec2:CreateTags"), err)
	}
	if err := p.Tag(t.Context(), got.ID, map[string]string{"karpenter.sh/nodeclaim": "1", "Name": "ip-10-0-0-1"}); err != nil {
		t.Fatal(err)
	}
	if sim, _ := w.sim.Instance(got.ID); sim.Tags["Name"] != "ip-10-0-0-1" || sim.Tags["team"] != "a" {
		t.Errorf("tags are %v", sim.Tags)
	}
	if err := p.Tag(t.Context(), "i-0123456789abcdef0", map[string]string{"a": "b"}); code(err) != codeInstanceNotFound {
		t.Errorf("tagging what isn't there: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	newWorld(t)
	for name, cfg := range map[string]Config{
		"no cluster":        {},
		"overhead":          {ClusterName: "demo", MemoryOverhead: new(7.5)},
		"negative overhead": {ClusterName: "demo", MemoryOverhead: new(-0.1)},
		"hasty refresh":     {ClusterName: "demo", AMIRefresh: time.Second},
		"negative ENIs":     {ClusterName: "demo", ReservedENIs: -1},
	} {
		if _, err := New(t.Context(), cfg); err == nil {
			t.Errorf("%s: the configuration was taken", name)
		}
	}
	t.Setenv("AWS_REGION", "")
	if _, err := New(t.Context(), Config{ClusterName: "demo"}); err == nil {
		t.Error("a provider without a region was made")
	}
}

func TestClassify(t *testing.T) {
	for code, terminal := range map[string]bool{
		"UnauthorizedOperation": true, "InvalidParameterValue": true, "InvalidAMIID.NotFound": true,
		"RequestLimitExceeded": false, "InternalError": false, "InsufficientInstanceCapacity": false, codeTemplateNotFound: false,
	} {
		err := failed("try", fleetError(ec2types.CreateFleetError{ErrorCode: &code, ErrorMessage: new("no")}))
		if got := errors.As(err, new(*cloud.TerminalError)); got != terminal {
			t.Errorf("%s: terminal is %t", code, got)
		}
	}
	profile := fleetError(ec2types.CreateFleetError{ErrorCode: new("InvalidParameterValue"), ErrorMessage: new("Value (demo_1) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name")})
	if errors.As(profile, new(*cloud.TerminalError)) {
		t.Error("a profile that isn't known everywhere yet is given up")
	}
	long := clean("You are not authorized to perform this operation. Encoded authorization failure message: abcdef")
	if long != "You are not authorized to perform this operation." {
		t.Errorf("message is %q", long)
	}
}

// A failure that isn't for the sake of one instance isn't met again for each.
func TestTerminateFailsAsAWhole(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	for code, want := range map[string]int{"InvalidParameterCombination": 1, "OperationNotPermitted": 1 + 3} {
		w.sim.ResetCounters()
		w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:TerminateInstances"}, Code: code, Count: 4}})
		for _, err := range p.terminateAll(t.Context(), []string{"i-0123456789abcdef0", "i-0123456789abcdef1", "i-0123456789abcdef2"}) {
			if err == nil {
				t.Errorf("%s: no error", code)
			}
		}
		if n := w.calls("ec2:TerminateInstances"); n != want {
			t.Errorf("%s: %d calls, want %d", code, n, want)
		}
		w.sim.EndEffects()
	}
}

func TestReboot(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	i := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{cloud.OnDemand}))
	w.clock.Advance(time.Minute)
	if err := p.Reboot(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if sim, _ := w.sim.Instance(i.ID); !sim.Rebooting || sim.State != ec2sim.StateRunning {
		t.Errorf("EC2 has %+v", sim)
	}
	err := p.Reboot(t.Context(), "i-0123456789abcdef0")
	if err == nil || !strings.Contains(err.Error(), "reboot instance i-0123456789abcdef0: "+codeInstanceNotFound) {
		t.Errorf("an unknown instance: %v", err)
	}
	if err := p.Terminate(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if err := p.Reboot(t.Context(), i.ID); err != nil {
		t.Errorf("one that ends: %v", err)
	}
}
