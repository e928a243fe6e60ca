package ec2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// recheckFailed is how soon a check that failed is made again. One that passed holds
// until what it checked changes: after that, launches speak for themselves.
const recheckFailed = time.Minute

// maxTags is how many tags a resource can have.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
const maxTags = 50

// validate finds what would keep a launch from working, before one is needed.
func (p *Provider) validate(ctx context.Context, class *aws.EC2NodeClass) finding {
	refuse := func(reason, message string) finding {
		return finding{condition: aws.ConditionValidationSucceeded, reason: reason, message: message}
	}
	f := family(class.AMIFamily())
	k, err := readKubelet(class.Spec.Kubelet)
	if err != nil {
		return refuse("InvalidKubeletConfiguration", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if unsupported := k.unsupported(f); len(unsupported) > 0 {
		return refuse("UnsupportedKubeletConfiguration", fmt.Sprintf("nodes of family %s can't be given kubelet.%s; remove them or use AL2023",
			f, strings.Join(unsupported, ", kubelet.")))
	}
	for _, key := range []string{aws.TagNodePool, aws.TagNodeClaim, aws.TagNodeClass, aws.TagEKSClusterName, cloud.TagNodeClaimUID, cloud.TagFleet} {
		if _, set := class.Spec.Tags[key]; set {
			return refuse("TagValidationFailed", "the tag "+key+" is set by the controller; remove it from spec.tags")
		}
	}
	if n := len(p.tagsOf(class)); n > maxTags {
		return refuse("TagValidationFailed", fmt.Sprintf("an instance would have %d tags with the controller's own, and EC2 takes %d; remove %d from spec.tags",
			n, maxTags, n-maxTags))
	}
	for _, name := range []string{aws.ConditionAMIsReady, aws.ConditionInstanceProfileReady, aws.ConditionSecurityGroupsReady, aws.ConditionSubnetsReady, aws.ConditionPlacementGroupReady} {
		c := apimeta.FindStatusCondition(class.Status.Conditions, name)
		switch {
		case c == nil || c.Status == metav1.ConditionUnknown:
			return finding{condition: aws.ConditionValidationSucceeded, err: fmt.Errorf("check a launch: %s is unknown yet", name)}
		case c.Status == metav1.ConditionFalse:
			return refuse("DependenciesNotReady", "a launch can be checked once AMIs, instance profile, security groups, subnets and placement group are ready")
		}
	}
	info, err := p.cluster(ctx, f)
	if err != nil {
		return because("ClusterCIDRResolutionFailed", err)
	}
	data, err := userData(bootstrap{
		family: f, cluster: info.cluster, kubelet: k, maxPods: podsWithoutENILimit, taints: nodeTaints(nil, nil),
		raid0:  deref(class.Spec.InstanceStorePolicy) == aws.InstanceStorePolicyRAID0,
		custom: deref(class.Spec.UserData),
	})
	if err != nil {
		reason := "InvalidUserData"
		if errors.As(err, new(*userDataTooLong)) {
			reason = "UserDataSizeLimitExceeded"
		}
		return refuse(reason, err.Error())
	}
	if !p.cfg.DisableDryRun {
		return p.dryRun(ctx, class, data, info.ipv6)
	}
	return finding{condition: aws.ConditionValidationSucceeded}
}

// because is a finding of the reason if the error is one that a person has to mend.
func because(reason string, err error) finding {
	var terminal *cloud.TerminalError
	if errors.As(err, &terminal) {
		return finding{condition: aws.ConditionValidationSucceeded, reason: reason, message: err.Error()}
	}
	return finding{condition: aws.ConditionValidationSucceeded, err: err}
}

// dryRun asks EC2 whether it would let us launch: a launch template is made, and a
// fleet and an instance from it are tried dry. The outcome is remembered.
func (p *Provider) dryRun(ctx context.Context, class *aws.EC2NodeClass, data string, ipv6 bool) finding {
	list, err := p.InstanceTypes(ctx, class)
	if err != nil {
		return because("InstanceTypesNotFound", err)
	}
	instanceType, zone := cheapest(list)
	if instanceType == nil {
		return finding{condition: aws.ConditionValidationSucceeded, reason: "InstanceTypesNotFound",
			message: "no instance type is sold in the class's subnets' zones that its images run on"}
	}
	image, _ := cloud.ImageFor(class.Status.AMIs, instanceType.Labels)
	none := &karpenter.NodeClaim{}
	in := templateInput{class: class, capacityType: cloud.OnDemand, image: image, userData: data, ipv6: ipv6, tags: p.sharedTags(class, none)}
	key := templateName(templateData(in), in.tags) + placesOf(class)
	now := p.clock.Now()
	if known, ok := p.checks.known(class.UID, key, now); ok {
		return known
	}
	found := p.tryLaunch(ctx, class, in, instanceType.Name, zone)
	if found.err == nil {
		p.checks.remember(class.UID, key, found, now)
	}
	return found
}

// cheapest is the cheapest type that can be bought on demand, and the zone.
func cheapest(list []cloud.InstanceType) (*cloud.InstanceType, string) {
	var best *cloud.InstanceType
	var zone string
	var price int64
	for i := range list {
		for _, o := range list[i].Offerings {
			if o.CapacityType == cloud.OnDemand && (best == nil || o.MicroUSD < price) {
				best, zone, price = &list[i], o.Zone, o.MicroUSD
			}
		}
	}
	return best, zone
}

// tagsOf are as many tags as a launch from the class has.
func (p *Provider) tagsOf(class *aws.EC2NodeClass) map[string]string {
	tags := p.instanceTags(class, &karpenter.NodeClaim{})
	tags[cloud.TagFleet] = ""
	return tags
}

func (p *Provider) tryLaunch(ctx context.Context, class *aws.EC2NodeClass, in templateInput, instanceType, zone string) finding {
	template, err := p.ensureTemplate(ctx, in)
	if err != nil {
		return refused("ec2:CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed", err)
	}
	all := p.tagsOf(class)
	fleet := fleetInput(fleetPlan{capacityType: cloud.OnDemand}, 1, all, class.Spec.Context)
	fleet.DryRun = new(true)
	overrides := []ec2types.FleetLaunchTemplateOverridesRequest{}
	subnet := ""
	for _, s := range class.Status.Subnets {
		overrides = append(overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(instanceType), SubnetId: new(s.ID),
		})
		if s.Zone == zone {
			subnet = s.ID
		}
	}
	fleet.LaunchTemplateConfigs = []ec2types.FleetLaunchTemplateConfigRequest{{
		LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: &template, Version: new("$Latest")},
		Overrides:                   overrides,
	}}
	if _, err := p.ec2.CreateFleet(ctx, fleet); code(err) != codeDryRun {
		return refused("ec2:CreateFleet", "CreateFleetAuthCheckFailed", p.settleProfile(class, failed("try a fleet", err)))
	}
	tags := ec2Tags(all)
	_, err = p.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
		DryRun: new(true), MinCount: new(int32(1)), MaxCount: new(int32(1)),
		InstanceType:      ec2types.InstanceType(instanceType),
		LaunchTemplate:    &ec2types.LaunchTemplateSpecification{LaunchTemplateName: &template, Version: new("$Latest")},
		NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{DeviceIndex: new(int32(0)), SubnetId: &subnet}},
		TagSpecifications: []ec2types.TagSpecification{
			{ResourceType: ec2types.ResourceTypeInstance, Tags: tags},
			{ResourceType: ec2types.ResourceTypeVolume, Tags: tags},
			{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: tags},
		},
	})
	if code(err) != codeDryRun {
		return refused("ec2:RunInstances", "RunInstancesAuthCheckFailed", p.settleProfile(class, failed("try an instance", err)))
	}
	return finding{condition: aws.ConditionValidationSucceeded}
}

// refused turns the outcome of a dry run into a finding: missing rights have a
// reason of their own, other refusals EC2's.
func refused(action, reason string, err error) finding {
	switch {
	case err == nil:
		// EC2 answers every dry run with an error. One that doesn't has run.
		return finding{condition: aws.ConditionValidationSucceeded, err: fmt.Errorf("%s ignored that it was a dry run", action)}
	case code(err) == codeUnauthorized:
		return finding{condition: aws.ConditionValidationSucceeded, reason: reason,
			message: fmt.Sprintf("the controller isn't authorized to call %s; allow it in the controller's IAM policy", action)}
	}
	return settle(aws.ConditionValidationSucceeded, err)
}

// checkLog remembers the outcome of dry runs by class.
type checkLog struct {
	mu    sync.Mutex
	found map[types.UID]checked
}

type checked struct {
	key     string
	finding finding
	at      time.Time
}

func (l *checkLog) known(class types.UID, key string, now time.Time) (finding, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.found[class]
	if !ok || c.key != key || c.finding.reason != "" && now.Sub(c.at) >= recheckFailed {
		return finding{}, false
	}
	return c.finding, true
}

func (l *checkLog) remember(class types.UID, key string, f finding, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil {
		l.found = map[types.UID]checked{}
	}
	l.found[class] = checked{key, f, now}
}

func (l *checkLog) forget(class types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.found, class)
}
