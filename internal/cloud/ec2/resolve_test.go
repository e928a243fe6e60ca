package ec2

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/schemas/aws"
)

// conditionsText is one line a condition, without times.
func conditionsText(l []metav1.Condition) string {
	var out []string
	for _, c := range l {
		line := c.Type + "=" + string(c.Status)
		if c.Reason != c.Type {
			line += " " + c.Reason
		}
		if c.Message != "" {
			line += ": " + c.Message
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n") + "\n"
}

// What selectors find is asked for again after the interval that the operator chose.
func TestRefreshIntervals(t *testing.T) {
	w := newWorld(t)
	p := w.provider(func(c *Config) { c.AMIRefresh = 5 * time.Minute; c.SecurityGroupRefresh = 2 * time.Minute })
	class := w.resolve(p, newClass())
	w.clock.Advance(10 * time.Minute)
	w.sim.ResetCounters()
	for range 10 {
		w.resolve(p, class)
		w.clock.Advance(time.Minute)
	}
	for action, want := range map[string]int{"ec2:DescribeImages": 2, "ec2:DescribeSecurityGroups": 5, "ec2:DescribeSubnets": 10} {
		if n := w.calls(action); n != want {
			t.Errorf("in ten minutes %s was called %d times, want %d", action, n, want)
		}
	}
}

func TestResolveClass(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())

	want := `SubnetsReady=True
SecurityGroupsReady=True
AMIsReady=True
InstanceProfileReady=True
CapacityReservationsReady=True
PlacementGroupReady=True
ValidationSucceeded=True
Ready=True
`
	if got := conditionsText(class.Status.Conditions); got != want {
		t.Fatalf("conditions:\n%s", cmp.Diff(want, got))
	}
	if n := len(class.Status.Subnets); n != 4 {
		t.Errorf("%d subnets, want one in each of 4 zones: %+v", n, class.Status.Subnets)
	}
	for _, s := range class.Status.Subnets {
		if s.ID == "" || s.Zone == "" || s.ZoneID == "" {
			t.Errorf("subnet is incomplete: %+v", s)
		}
	}
	if len(class.Status.SecurityGroups) != 1 || class.Status.SecurityGroups[0].Name == "" {
		t.Errorf("security groups: %+v", class.Status.SecurityGroups)
	}
	if n := len(class.Status.AMIs); n != 5 {
		t.Errorf("%d images, want one for each architecture and variant: %+v", n, class.Status.AMIs)
	}
	if !strings.HasPrefix(class.Status.InstanceProfile, "demo_") {
		t.Errorf("instance profile is %q", class.Status.InstanceProfile)
	}
	if n := w.calls("iam:AddRoleToInstanceProfile"); n != 1 {
		t.Errorf("the role was added %d times", n)
	}

	// Again: nothing changes, and a second class with the same selectors costs nothing.
	w.sim.ResetCounters()
	before := class.DeepCopy()
	w.resolve(p, class)
	other := newClass()
	other.Name, other.UID = "other", "other-uid"
	w.resolve(p, other)
	if diff := cmp.Diff(before.Status, class.Status); diff != "" {
		t.Errorf("the second resolution changed the status:\n%s", diff)
	}
	for _, action := range []string{"ec2:DescribeSubnets", "ec2:DescribeSecurityGroups", "ec2:DescribeImages", "ssm:GetParameter"} {
		if n := w.calls(action); n != 0 {
			t.Errorf("%s was called %d times more", action, n)
		}
	}

	// A minute later the selectors are looked up again; what was validated stays so.
	w.sim.ResetCounters()
	w.clock.Advance(selectionTTL)
	w.resolve(p, class)
	if diff := cmp.Diff(before.Status, class.Status); diff != "" {
		t.Errorf("the resolution after a minute changed the status:\n%s", diff)
	}
	for action, want := range map[string]int{
		"ec2:DescribeSubnets": 1, "ec2:DescribeSecurityGroups": 1, "ec2:DescribeImages": 1,
		"ssm:GetParameter": 0, "ec2:CreateFleet": 0, "ec2:RunInstances": 0, "iam:GetInstanceProfile": 0, "eks:DescribeCluster": 0,
	} {
		if n := w.calls(action); n != want {
			t.Errorf("%s was called %d times, want %d", action, n, want)
		}
	}
	if n := len(w.live()); n != 0 {
		t.Errorf("validation launched %d instances", n)
	}
}

func TestResolveClassFindings(t *testing.T) {
	tests := map[string]struct {
		why       string
		change    func(*aws.EC2NodeClass)
		condition string
		want      string
	}{
		"no subnets": {
			"selectors that match nothing are the author's to mend",
			func(c *aws.EC2NodeClass) {
				c.Spec.SubnetSelectorTerms = []aws.SubnetSelectorTerm{{Tags: map[string]string{"a": "b"}}}
			},
			aws.ConditionSubnetsReady, "SubnetsReady=False SubnetsNotFound: subnetSelectorTerms match no subnet: tag:a=b",
		},
		"no groups": {
			"", func(c *aws.EC2NodeClass) {
				c.Spec.SecurityGroupSelectorTerms = []aws.SecurityGroupSelectorTerm{{Name: "nope"}}
			},
			aws.ConditionSecurityGroupsReady, "SecurityGroupsReady=False SecurityGroupsNotFound: securityGroupSelectorTerms match no security group: group-name=nope",
		},
		"no image": {
			"", func(c *aws.EC2NodeClass) {
				c.Spec.AMISelectorTerms = []aws.AMISelectorTerm{{ID: "ami-0123456789abcdef0"}}
				c.Spec.AMIFamily = new(aws.AMIFamilyAL2023)
			},
			aws.ConditionAMIsReady, "AMIsReady=False AMINotFound: amiSelectorTerms match no image of an architecture that nodes can have (x86_64, arm64)",
		},
		"a parameter that isn't there": {
			"", func(c *aws.EC2NodeClass) {
				c.Spec.AMISelectorTerms = []aws.AMISelectorTerm{{SSMParameter: "/golden/image"}}
				c.Spec.AMIFamily = new(aws.AMIFamilyAL2023)
			},
			aws.ConditionAMIsReady, "AMIsReady=False AMINotFound: amiSelectorTerms match no image of an architecture that nodes can have (x86_64, arm64); there is no SSM parameter /golden/image",
		},
		"alias": {
			"AL2 ended with Kubernetes 1.32",
			func(c *aws.EC2NodeClass) { c.Spec.AMISelectorTerms = []aws.AMISelectorTerm{{Alias: "al2@latest"}} },
			aws.ConditionAMIsReady, "AMIsReady=False UnsupportedAlias: there are no AL2 images for Kubernetes 1.33 (the last is 1.32); use al2023",
		},
		"kubelet": {
			"", func(c *aws.EC2NodeClass) {
				c.Spec.Kubelet = aws.KubeletConfiguration{"evictionHard": {Raw: []byte(`{"memory.available":"much"}`)}}
			},
			aws.ConditionValidationSucceeded, `ValidationSucceeded=False InvalidKubeletConfiguration: kubelet.evictionHard.memory.available: "much" is neither a quantity nor a percentage`,
		},
		"tags": {
			"", func(c *aws.EC2NodeClass) { c.Spec.Tags = map[string]string{cloud.TagNodeClaimUID: "x"} },
			aws.ConditionValidationSucceeded, "ValidationSucceeded=False TagValidationFailed: the tag coppice.dev/nodeclaim-uid is set by the controller; remove it from spec.tags",
		},
		"too many tags": {
			"the controller's come on top",
			func(c *aws.EC2NodeClass) {
				for n := range 45 {
					c.Spec.Tags[fmt.Sprint("t", n)] = "x"
				}
			},
			aws.ConditionValidationSucceeded, "ValidationSucceeded=False TagValidationFailed: an instance would have 54 tags with the controller's own, and EC2 takes 50; remove 4 from spec.tags",
		},
		"a profile that isn't there": {
			"it is named, so that nobody else will make it",
			func(c *aws.EC2NodeClass) { c.Spec.Role, c.Spec.InstanceProfile = "", new("nope") },
			aws.ConditionInstanceProfileReady, `InstanceProfileReady=False InstanceProfileNotFound: instance profile "nope" doesn't exist; create it, or name another in spec.instanceProfile`,
		},
		"a role that isn't there": {
			"", func(c *aws.EC2NodeClass) { c.Spec.Role = "nope" },
			aws.ConditionInstanceProfileReady, `InstanceProfileReady=False NodeRoleNotFound: role "nope" doesn't exist; create it, or name another in spec.role`,
		},
		"user data": {
			"", func(c *aws.EC2NodeClass) { c.Spec.UserData = new("#!/bin/sh\n" + strings.Repeat("#", maxUserData)) },
			aws.ConditionValidationSucceeded, "ValidationSucceeded=False UserDataSizeLimitExceeded: user data: 16921 bytes are more than the 16384 that EC2 takes; shorten spec.userData",
		},
		"placement group": {
			"", func(c *aws.EC2NodeClass) { c.Spec.PlacementGroupSelector = &aws.PlacementGroupSelector{Name: "nope"} },
			aws.ConditionPlacementGroupReady, `PlacementGroupReady=False PlacementGroupNotFound: no available placement group is called "nope"`,
		},
	}
	w := newWorld(t, func(c *ec2sim.Config) { c.Roles = []string{newClass().Spec.Role} })
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			class := newClass()
			tt.change(class)
			status, err := w.provider().ResolveClass(t.Context(), class)
			if err != nil {
				t.Fatal(err)
			}
			got := conditionsText([]metav1.Condition{*apimeta.FindStatusCondition(status.Conditions, tt.condition)})
			if got != tt.want+"\n" {
				t.Errorf("%s\n got %swant %s", tt.why, got, tt.want)
			}
			ready := apimeta.FindStatusCondition(status.Conditions, aws.ConditionReady)
			if ready.Status != metav1.ConditionFalse || ready.Reason != "UnhealthyDependents" || !strings.Contains(ready.Message, tt.condition+"=False") {
				t.Errorf("Ready is %s %s %q", ready.Status, ready.Reason, ready.Message)
			}
		})
	}
}

// Images can be selected in every way that the API has.
func TestResolveImages(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	noDryRun := func(c *Config) { c.DisableDryRun = true }
	all := w.resolve(p, newClass()).Status.AMIs
	var plain aws.AMI
	for _, a := range all {
		if strings.Contains(a.Name, "x86_64-standard") {
			plain = a
		}
	}
	if plain.ID == "" {
		t.Fatalf("no standard x86_64 image among %+v", all)
	}
	for name, term := range map[string]aws.AMISelectorTerm{
		"id":        {ID: plain.ID},
		"name":      {Name: plain.Name},
		"pattern":   {Name: "amazon-eks-node-al2023-x86_64-standard-1.33-*"},
		"owner":     {Name: plain.Name, Owner: "amazon"},
		"parameter": {SSMParameter: "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id"},
	} {
		t.Run(name, func(t *testing.T) {
			class := newClass()
			class.Spec.AMISelectorTerms = []aws.AMISelectorTerm{term}
			class.Spec.AMIFamily = new(aws.AMIFamilyAL2023)
			got := w.resolve(w.provider(noDryRun), class).Status.AMIs
			if len(got) != 1 || got[0].ID != plain.ID || len(got[0].Requirements) != 1 {
				t.Errorf("got %+v, want %s for its architecture", got, plain.ID)
			}
		})
	}
}

// A failure that may pass leaves what is known alone and is an error; missing rights
// are a condition.
func TestResolveClassFailures(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "1") // the SDK's own retries would only take time
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	before := class.DeepCopy()
	w.clock.Advance(selectionTTL)

	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:DescribeSubnets"}, Code: "InternalError"}})
	status, err := p.ResolveClass(brief(t), class)
	if err == nil || errors.As(err, new(*cloud.TerminalError)) || !strings.Contains(err.Error(), "find subnets: InternalError") {
		t.Errorf("error is %v", err)
	}
	if diff := cmp.Diff(before.Status, status); diff != "" {
		t.Errorf("a failure that may pass changed the status:\n%s", diff)
	}
	fresh := newClass()
	fresh.UID = "fresh"
	status, err = w.provider().ResolveClass(brief(t), fresh)
	if err == nil || !strings.Contains(conditionsText(status.Conditions), "SubnetsReady=Unknown AwaitingReconciliation: find subnets: InternalError") ||
		!strings.Contains(conditionsText(status.Conditions), "Ready=Unknown ReconcilingDependents: SubnetsReady=Unknown, ValidationSucceeded=Unknown") {
		t.Errorf("of a class that was never resolved (%v):\n%s", err, conditionsText(status.Conditions))
	}
	w.sim.EndEffects()

	w.clock.Advance(selectionTTL)
	w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:DescribeSecurityGroups"}, Code: "UnauthorizedOperation"}})
	status, err = p.ResolveClass(t.Context(), class)
	if err != nil {
		t.Errorf("missing rights are an error: %v", err)
	}
	if got := conditionsText(status.Conditions); !strings.Contains(got, "SecurityGroupsReady=False UnauthorizedOperation: find security groups: UnauthorizedOperation") {
		t.Errorf("conditions:\n%s", got)
	}
	if diff := cmp.Diff(before.Status.SecurityGroups, status.SecurityGroups); diff != "" {
		t.Errorf("what was known is gone:\n%s", diff)
	}
}

func TestDryRunFindsMissingRights(t *testing.T) {
	for action, reason := range map[string]string{
		"CreateLaunchTemplate": "CreateLaunchTemplateAuthCheckFailed",
		"CreateFleet":          "CreateFleetAuthCheckFailed",
		"RunInstances":         "RunInstancesAuthCheckFailed",
	} {
		t.Run(action, func(t *testing.T) {
			w := newWorld(t)
			p := w.provider()
			w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:" + action}, Code: "UnauthorizedOperation"}})
			class := w.resolve(p, newClass())
			want := "ValidationSucceeded=False " + reason + ": the controller isn't authorized to call ec2:" + action
			if got := conditionsText(class.Status.Conditions); !strings.Contains(got, want) {
				t.Fatalf("conditions:\n%s\nwant %s", got, want)
			}
			w.sim.ResetCounters()
			w.resolve(p, class)
			if n := w.calls("ec2:" + action); n != 0 {
				t.Errorf("a refusal was checked again at once")
			}
			w.sim.EndEffects()
			w.clock.Advance(recheckFailed)
			w.resolve(p, class)
			if got := conditionsText(class.Status.Conditions); !strings.Contains(got, "Ready=True") {
				t.Errorf("after the right was given:\n%s", got)
			}
			w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"ec2:" + action}, Code: "UnauthorizedOperation"}})
			p = w.provider(func(c *Config) { c.DisableDryRun = true })
			if got := conditionsText(w.resolve(p, newClass()).Status.Conditions); !strings.Contains(got, "Ready=True") {
				t.Errorf("without dry runs:\n%s", got)
			}
		})
	}
}

func TestCleanClass(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"}))
	// Another role has another profile; the first stays for those who run with it.
	first := class.Status.InstanceProfile
	class.Spec.Role = "Another"
	class.Generation++
	w.resolve(p, class)
	if class.Status.InstanceProfile == first {
		t.Error("another role has the same instance profile")
	}
	other := newClass()
	other.Name, other.UID = "other", "other-uid"
	w.resolve(p, other)

	w.sim.ResetCounters()
	if err := p.CleanClass(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	for action, want := range map[string]int{"iam:DeleteInstanceProfile": 2, "iam:RemoveRoleFromInstanceProfile": 2} {
		if n := w.calls(action); n != want {
			t.Errorf("%s was called %d times, want %d", action, n, want)
		}
	}
	if n := w.calls("ec2:DeleteLaunchTemplate"); n < 2 {
		t.Errorf("%d launch templates were deleted, want that of the launch and those of the checks", n)
	}
	w.sim.ResetCounters()
	if err := p.CleanClass(t.Context(), class); err != nil {
		t.Errorf("a second cleaning: %v", err)
	}
	if n := w.calls("iam:DeleteInstanceProfile") + w.calls("ec2:DeleteLaunchTemplate"); n != 0 {
		t.Errorf("a second cleaning deleted %d more", n)
	}
	if got := conditionsText(w.resolve(w.provider(), other).Status.Conditions); !strings.Contains(got, "Ready=True") {
		t.Errorf("another class was cleaned too:\n%s", got)
	}
	if n := w.calls("iam:CreateInstanceProfile"); n != 0 {
		t.Error("another class's profile was deleted")
	}
}

// Launch templates that nothing used for an hour go; those in use stay.
func TestSweepTemplates(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"}))
	w.clock.Advance(templateIdle / 2)
	w.launch(p, w.request(p, class, w.claim("2"), []string{"m5.large"}, []string{"on-demand"}))
	w.sim.ResetCounters()
	w.clock.Advance(templateIdle/2 + time.Minute)
	w.resolve(p, class)
	if n := w.calls("ec2:DeleteLaunchTemplate"); n != 1 {
		t.Errorf("%d launch templates were deleted, want that of the check alone", n)
	}
	w.launch(p, w.request(p, class, w.claim("3"), []string{"m5.large"}, []string{"on-demand"}))
	if n := w.calls("ec2:CreateLaunchTemplate"); n != 0 {
		t.Errorf("the launch template in use was made again %d times", n)
	}
}

// The profile of a role that the class had before goes once no instance has it.
func TestSweepProfiles(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	old := class.Status.InstanceProfile
	w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"}))
	class.Spec.Role = "AnotherRole"
	w.resolve(p, class)
	if class.Status.InstanceProfile == old {
		t.Fatal("another role has the same profile")
	}
	sweep := func() int {
		t.Helper()
		w.sim.ResetCounters()
		w.clock.Advance(templateIdle + time.Minute)
		w.resolve(p, class)
		return w.calls("iam:DeleteInstanceProfile")
	}
	if n := sweep(); n != 0 {
		t.Errorf("%d profiles were deleted while an instance has the old one", n)
	}
	for _, i := range w.live() {
		if err := p.Terminate(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Advance(2 * time.Minute)
	if n := sweep(); n != 1 {
		t.Errorf("%d profiles were deleted, want the old one", n)
	}
	if n := sweep(); n != 0 {
		t.Errorf("%d more were deleted", n)
	}
	launched := w.launch(p, w.request(p, class, w.claim("2"), []string{"m5.large"}, []string{"on-demand"}))
	if i, _ := w.sim.Instance(launched.ID); !strings.HasSuffix(i.InstanceProfile, class.Status.InstanceProfile) {
		t.Errorf("the next instance has profile %q", i.InstanceProfile)
	}
}

// A profile that a launch used within the hour stays: its instance may not be listed yet.
func TestSweepProfilesKeepsWhatLaunches(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	class := w.resolve(p, newClass())
	w.clock.Advance(templateIdle / 2)
	i := w.launch(p, w.request(p, class, w.claim("1"), []string{"m5.large"}, []string{"on-demand"}))
	if err := p.Terminate(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	class.Spec.Role = "AnotherRole"
	for _, want := range []int{0, 1} {
		w.clock.Advance(templateIdle/2 + time.Minute)
		w.sim.ResetCounters()
		w.resolve(p, class)
		if n := w.calls("iam:DeleteInstanceProfile"); n != want {
			t.Errorf("%d profiles were deleted, want %d", n, want)
		}
		w.clock.Advance(templateIdle / 2)
	}
}

// Profiles that were made for a class's roles go also when it names one by now.
func TestProfilesOfAClassThatNamesOne(t *testing.T) {
	w := newWorld(t)
	for name, goes := range map[string]func(*Provider, *aws.EC2NodeClass) error{
		"clean": func(p *Provider, class *aws.EC2NodeClass) error { return p.CleanClass(t.Context(), class) },
		"sweep": func(p *Provider, class *aws.EC2NodeClass) error {
			w.clock.Advance(templateIdle + time.Minute)
			_, err := p.ResolveClass(t.Context(), class)
			return err
		},
	} {
		p := w.provider()
		class := newClass()
		class.UID = types.UID(name)
		w.resolve(p, class)
		class.Spec.Role, class.Spec.InstanceProfile = "", new("node")
		w.resolve(p, class)
		w.sim.ResetCounters()
		w.do(ec2sim.Step{Calls: &ec2sim.CallFault{Actions: []string{"iam:ListInstanceProfiles"}, Code: "AccessDenied", Count: 1}})
		if err := p.deleteProfiles(t.Context(), class, nil); err != nil {
			t.Errorf("%s: without rights to IAM: %v", name, err)
		}
		if err := goes(p, class); err != nil {
			t.Fatal(err)
		}
		if n := w.calls("iam:DeleteInstanceProfile"); n != 1 {
			t.Errorf("%s: %d profiles were deleted, want that of the role", name, n)
		}
	}
}
