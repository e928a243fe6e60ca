package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// templatePrefix begins the names of our launch templates.
const templatePrefix = "coppice/"

// templateIdle is how long a launch template may be unused before it goes.
const templateIdle = time.Hour

// templateInput is what a launch template is made from. Nothing in it belongs to
// one claim, so that claims share templates.
type templateInput struct {
	class        *aws.EC2NodeClass
	capacityType string
	image        string
	userData     string
	// efas are the EFA interfaces to attach, one to a card.
	efas int64
	// cards is how many network cards the type has.
	cards int64
	// reservation is what to launch into, empty for none.
	reservation string
	market      ec2types.MarketType // as in fleetPlan
	ipv6        bool
	tags        map[string]string
}

// templateData writes the launch template. It holds all that the types of one fleet
// share; type, subnet and price are overrides of the fleet.
func templateData(in templateInput) *ec2types.RequestLaunchTemplateData {
	spec := &in.class.Spec
	tags := ec2Tags(in.tags)
	data := &ec2types.RequestLaunchTemplateData{
		ImageId:            &in.image,
		UserData:           new(base64.StdEncoding.EncodeToString([]byte(in.userData))),
		IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: &in.class.Status.InstanceProfile},
		// Whatever the subnet or the account's defaults say, these are as the class says.
		Monitoring:          &ec2types.LaunchTemplatesMonitoringRequest{Enabled: new(deref(spec.DetailedMonitoring))},
		EnclaveOptions:      &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: new(spec.EnclaveOptions != nil && deref(spec.EnclaveOptions.Enabled))},
		MetadataOptions:     metadataOptions(spec.MetadataOptions),
		BlockDeviceMappings: blockDevices(family(in.class.AMIFamily()), spec.BlockDeviceMappings),
		NetworkInterfaces:   networkInterfaces(in),
		Placement:           &ec2types.LaunchTemplatePlacementRequest{Tenancy: ec2types.TenancyDefault},
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: tags},
		},
	}
	if in.capacityType == "spot" {
		data.TagSpecifications = append(data.TagSpecifications,
			ec2types.LaunchTemplateTagSpecificationRequest{ResourceType: ec2types.ResourceTypeSpotInstancesRequest, Tags: tags})
	}
	if g := spec.PlacementGroupSelector; g != nil {
		if g.ID != "" {
			data.Placement.GroupId = &g.ID
		} else {
			data.Placement.GroupName = &g.Name
		}
	}
	if o := spec.CPUOptions; o != nil && o.NestedVirtualization != nil {
		data.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{
			NestedVirtualization: ec2types.NestedVirtualizationSpecification(*o.NestedVirtualization),
		}
	}
	// Reservations that are open would take any matching instance. Only those that a
	// claim asks for are used, so that the count of what is left stays right.
	data.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
		CapacityReservationPreference: ec2types.CapacityReservationPreferenceNone,
	}
	if in.reservation != "" {
		data.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: &in.reservation},
		}
	}
	if in.market != "" {
		data.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: in.market}
	}
	return data
}

func metadataOptions(o *aws.MetadataOptions) *ec2types.LaunchTemplateInstanceMetadataOptionsRequest {
	if o == nil {
		o = &aws.MetadataOptions{}
	}
	or := func(p *string, otherwise string) string {
		if p == nil {
			return otherwise
		}
		return *p
	}
	hops := int32(1)
	if o.HTTPPutResponseHopLimit != nil {
		hops = int32(*o.HTTPPutResponseHopLimit)
	}
	return &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
		HttpEndpoint:            ec2types.LaunchTemplateInstanceMetadataEndpointState(or(o.HTTPEndpoint, "enabled")),
		HttpProtocolIpv6:        ec2types.LaunchTemplateInstanceMetadataProtocolIpv6(or(o.HTTPProtocolIPv6, "disabled")),
		HttpPutResponseHopLimit: &hops,
		HttpTokens:              ec2types.LaunchTemplateHttpTokensState(or(o.HTTPTokens, "required")),
		// Tag keys of ours have slashes, which metadata can't serve.
		InstanceMetadataTags: ec2types.LaunchTemplateInstanceMetadataTagsStateDisabled,
	}
}

func blockDevices(f family, mappings []*aws.BlockDeviceMapping) []ec2types.LaunchTemplateBlockDeviceMappingRequest {
	var out []ec2types.LaunchTemplateBlockDeviceMappingRequest
	if len(mappings) == 0 {
		for _, v := range f.defaultVolumes() {
			out = append(out, ec2types.LaunchTemplateBlockDeviceMappingRequest{
				DeviceName: &v.device,
				Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
					Encrypted: new(true), DeleteOnTermination: new(true),
					VolumeSize: new(int32(v.gib)), VolumeType: ec2types.VolumeTypeGp3,
				},
			})
		}
		return out
	}
	for _, m := range mappings {
		request := ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: m.DeviceName}
		if e := m.EBS; e != nil {
			request.Ebs = &ec2types.LaunchTemplateEbsBlockDeviceRequest{
				DeleteOnTermination: e.DeleteOnTermination, Encrypted: e.Encrypted, KmsKeyId: e.KMSKeyID,
				SnapshotId: e.SnapshotID, VolumeInitializationRate: e.VolumeInitializationRate,
				VolumeType: ec2types.VolumeType(deref(e.VolumeType)),
				Iops:       int32Of(e.IOPS), Throughput: int32Of(e.Throughput),
			}
			if e.VolumeSize != nil {
				request.Ebs.VolumeSize = new(int32(ceilDiv(e.VolumeSize.Value(), gibibyte)))
			}
		}
		out = append(out, request)
	}
	return out
}

func int32Of(p *int64) *int32 {
	if p == nil {
		return nil
	}
	return new(int32(*p))
}

// networkInterfaces are the class's, or one, or one for each EFA. EC2 takes security
// groups and a public address here or at the top, not in both.
func networkInterfaces(in templateInput) []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	spec := &in.class.Spec
	var groups []string
	for _, g := range in.class.Status.SecurityGroups {
		groups = append(groups, g.ID)
	}
	make1 := func(card, device int32, kind string) ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
		i := ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
			NetworkCardIndex: &card, DeviceIndex: &device, Groups: groups,
		}
		if kind != "" {
			i.InterfaceType = &kind
		}
		if t := spec.ConnectionTracking; t != nil && kind != string(aws.InterfaceTypeEFAOnly) {
			i.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
				TcpEstablishedTimeout: t.TCPEstablishedTimeout, UdpStreamTimeout: t.UDPStreamTimeout, UdpTimeout: t.UDPTimeout,
			}
		}
		return i
	}
	var out []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest
	switch {
	case len(spec.NetworkInterfaces) > 0:
		for _, n := range spec.NetworkInterfaces {
			out = append(out, make1(n.NetworkCardIndex, n.DeviceIndex, string(n.InterfaceType)))
		}
	case in.efas > 0:
		// The first is on card 0 and carries IP traffic as well; the others are second
		// devices of their cards.
		for n := range in.efas {
			out = append(out, make1(int32(n%max(in.cards, 1)), min(int32(n), 1), "efa"))
		}
	default:
		out = append(out, make1(0, 0, ""))
		out[0].NetworkCardIndex = nil
	}
	primary := &out[0]
	for i := range out {
		if deref(out[i].NetworkCardIndex) == 0 && deref(out[i].DeviceIndex) == 0 {
			primary = &out[i]
		}
	}
	// EC2 gives a public address only to an instance with one interface.
	if len(out) == 1 {
		primary.AssociatePublicIpAddress = spec.AssociatePublicIPAddress
	}
	if n := deref(spec.IPPrefixCount); n > 0 {
		if in.ipv6 {
			primary.Ipv6PrefixCount = &n
		} else {
			primary.Ipv4PrefixCount = &n
		}
	}
	if in.ipv6 {
		primary.PrimaryIpv6 = new(true)
		if primary.Ipv6PrefixCount == nil {
			primary.Ipv6AddressCount = new(int32(1))
		}
	}
	return out
}

// templateName names a launch template by its content, so that equal ones are one
// and a changed one is another.
func templateName(data *ec2types.RequestLaunchTemplateData, tags map[string]string) string {
	text, err := json.Marshal([]any{data, tags})
	if err != nil {
		panic("launch template can't be written as JSON: " + err.Error()) // it holds plain values
	}
	sum := sha256.Sum256(text)
	return templatePrefix + hex.EncodeToString(sum[:16])
}

// ensureTemplate makes the launch template unless it is there, and returns its name.
func (p *Provider) ensureTemplate(ctx context.Context, in templateInput) (string, error) {
	data := templateData(in)
	name := templateName(data, in.tags)
	_, err := p.templates.get(ctx, name, func(ctx context.Context) (struct{}, error) {
		_, err := p.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: &name, LaunchTemplateData: data,
			TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: ec2Tags(in.tags)}},
		})
		if code(err) == codeTemplateExists {
			return struct{}{}, nil
		}
		return struct{}{}, failed("create launch template "+name, err)
	})
	if err == nil {
		p.sweeps.used(name, p.clock.Now())
		p.sweeps.used(in.class.Status.InstanceProfile, p.clock.Now())
	}
	return name, err
}

// ec2Tags are sorted by key.
func ec2Tags(tags map[string]string) []ec2types.Tag {
	var out []ec2types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: new(k), Value: new(tags[k])})
	}
	return out
}

// sweepLog knows when launch templates and instance profiles were used and when a class
// was last swept.
type sweepLog struct {
	mu    sync.Mutex
	uses  map[string]time.Time // by name; a template's has a slash, a profile's has none
	swept map[string]time.Time // by class
}

func (l *sweepLog) used(name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uses == nil {
		l.uses = map[string]time.Time{}
	}
	l.uses[name] = now
}

// due says whether the class's templates should be looked through now. The first
// time is one period after it is first seen: what was used before isn't known then.
func (l *sweepLog) due(class string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.swept == nil {
		l.swept = map[string]time.Time{}
	}
	last, known := l.swept[class]
	if known && now.Sub(last) < templateIdle {
		return false
	}
	l.swept[class] = now
	return known
}

// idle says whether the template or profile hasn't been used for long, and forgets it if
// so.
func (l *sweepLog) idle(name string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.uses[name]; known && now.Sub(last) < templateIdle {
		return false
	}
	delete(l.uses, name)
	return true
}

// sweepTemplates deletes the class's launch templates that nothing used for long.
func (p *Provider) sweepTemplates(ctx context.Context, class *aws.EC2NodeClass) error {
	now := p.clock.Now()
	return p.deleteTemplates(ctx, class, func(t ec2types.LaunchTemplate) bool {
		return now.Sub(deref(t.CreateTime)) >= templateIdle && p.sweeps.idle(deref(t.LaunchTemplateName), now)
	})
}

// deleteTemplates deletes those of the class's launch templates that go says.
func (p *Provider) deleteTemplates(ctx context.Context, class *aws.EC2NodeClass, goes func(ec2types.LaunchTemplate) bool) error {
	var errs []error
	pages := ec2.NewDescribeLaunchTemplatesPaginator(p.ec2, &ec2.DescribeLaunchTemplatesInput{
		Filters: []ec2types.Filter{
			filter("tag:"+aws.TagEKSClusterName, p.cfg.ClusterName),
			filter("tag:"+aws.TagNodeClass, class.Name),
		},
		MaxResults: new(int32(200)),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return failed("list launch templates of EC2NodeClass "+class.Name, err)
		}
		for _, t := range page.LaunchTemplates {
			name := deref(t.LaunchTemplateName)
			if !strings.HasPrefix(name, templatePrefix) || !goes(t) {
				continue
			}
			p.templates.forget(name)
			_, err := p.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: t.LaunchTemplateId})
			if c := code(err); err != nil && c != codeTemplateIDGone && c != codeTemplateNotFound {
				errs = append(errs, failed(fmt.Sprintf("delete launch template %s", name), err))
			}
		}
	}
	return errors.Join(errs...)
}
