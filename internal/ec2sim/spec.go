package ec2sim

import (
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// launchSpec is everything known about an instance before it is launched: a
// launch template and what a request lays over it, checked.
type launchSpec struct {
	templateID      string
	templateVersion int
	imageID         string
	typ             Type
	subnet          *subnet
	groups          []string
	userData        []byte
	profile         string
	profileARN      string
	keyName         string
	// tags by resource type.
	tags map[string]map[string]string
	// capacityPreference is none, open, capacity-reservations-only or empty;
	// capacityTarget names one reservation.
	capacityPreference, capacityTarget string
	// group is a placement group's name.
	group   string
	tenancy string
	// metadata, devices and monitoring are given back as they came.
	metadata   *params
	devices    []*params
	monitoring bool
	// spot and maxPrice come from InstanceMarketOptions.
	spot     bool
	maxPrice int64
	// market is the market type of a launch into reserved capacity, empty otherwise.
	market string
}

// Market types of launches into reserved capacity.
const (
	marketBlock         = "capacity-block"
	marketInterruptible = "interruptible-capacity-reservation"
)

// maxUserData is EC2's limit before base64.
const maxUserData = 16 << 10

func decodeUserData(text string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	switch {
	case err != nil:
		return nil, fail("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	case len(data) > maxUserData:
		return nil, invalidParameter("User data is limited to %d bytes", maxUserData)
	}
	return data, nil
}

// layers are request fragments with LaunchTemplateData's names, the last one
// winning.
type layers []*params

func (l layers) top(path string) *params {
	for _, p := range slices.Backward(l) {
		if at := p.at(path); at != nil {
			return at
		}
	}
	return nil
}

func (l layers) str(path string) string {
	if at := l.top(path); at != nil {
		return at.value
	}
	return ""
}

func (l layers) strs(path string) []string {
	for _, p := range slices.Backward(l) {
		if values := p.strs(path); len(values) > 0 {
			return values
		}
	}
	return nil
}

// templateLayer resolves a LaunchTemplateSpecification into its data.
func (s *Server) templateLayer(spec *params) (*params, *template, *templateVersion, error) {
	t, err := s.findTemplate(spec)
	if err != nil {
		return nil, nil, nil, err
	}
	v, err := t.version(spec.str("Version"))
	if err != nil {
		return nil, nil, nil, err
	}
	return v.data, t, v, nil
}

// resolve lays the layers over each other and checks what they refer to.
func (s *Server) resolve(l layers) (launchSpec, error) {
	spec := launchSpec{
		imageID:    l.str("ImageId"),
		keyName:    l.str("KeyName"),
		tenancy:    l.str("Placement.Tenancy"),
		metadata:   l.top("MetadataOptions"),
		monitoring: l.str("Monitoring.Enabled") == "true",
		tags:       map[string]map[string]string{},
	}
	if at := l.top("BlockDeviceMapping"); at != nil {
		spec.devices = (&params{kids: map[string]*params{"x": at}}).list("x")
	}
	for _, p := range l {
		for kind, tags := range tagSpecifications(p) {
			if spec.tags[kind] == nil {
				spec.tags[kind] = map[string]string{}
			}
			maps.Copy(spec.tags[kind], tags)
			if len(spec.tags[kind]) > maxTags {
				return launchSpec{}, fail("TagLimitExceeded", "The maximum number of tags for a resource is %d.", maxTags)
			}
		}
	}
	for _, check := range []func(layers, *launchSpec) error{
		s.resolveType, s.resolveImage, s.resolveSubnet, s.resolveGroups, s.resolveProfile, s.resolveMarket, s.resolvePlacement,
	} {
		if err := check(l, &spec); err != nil {
			return launchSpec{}, err
		}
	}
	userData, err := decodeUserData(l.str("UserData"))
	if err != nil {
		return launchSpec{}, err
	}
	spec.userData = userData
	return spec, nil
}

func (s *Server) resolveType(l layers, spec *launchSpec) error {
	name := l.str("InstanceType")
	if name == "" {
		return missingParameter("InstanceType")
	}
	typ, ok := s.cat.Type(name)
	if !ok {
		return invalidParameter("Invalid value '%s' for InstanceType.", name)
	}
	if !s.sold(name) {
		return fail("Unsupported", "The requested configuration is currently not supported: %s is not sold in %s.", name, s.cfg.Region)
	}
	spec.typ = typ
	return nil
}

func (s *Server) resolveImage(_ layers, spec *launchSpec) error {
	if spec.imageID == "" {
		return missingParameter("ImageId")
	}
	if !strings.HasPrefix(spec.imageID, "ami-") {
		return fail("InvalidAMIID.Malformed", "Invalid id: \"%s\" (expecting \"ami-...\")", spec.imageID)
	}
	img, ok := s.images[spec.imageID]
	if !ok {
		return fail("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", spec.imageID)
	}
	if img.arch != spec.typ.Arch {
		return invalidParameter("The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI.", spec.typ.Arch, img.arch)
	}
	return nil
}

// resolveSubnet takes the subnet of the request, else of its interface, else the
// one for nodes in the zone asked for, else the first that sells the type.
func (s *Server) resolveSubnet(l layers, spec *launchSpec) error {
	id := l.str("SubnetId")
	if id == "" {
		id = l.str("NetworkInterface.1.SubnetId")
	}
	zoneName := l.str("AvailabilityZone")
	if zoneName == "" {
		zoneName = l.str("Placement.AvailabilityZone")
	}
	if zoneName != "" {
		if _, ok := s.net.zone(zoneName); !ok {
			return invalidParameter("Invalid availability zone: [%s]", zoneName)
		}
	}
	switch {
	case id != "":
		spec.subnet = s.net.subnet(id)
		if spec.subnet == nil {
			return fail("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
		if z := spec.subnet.zone; zoneName != "" && zoneName != z.name && zoneName != z.id {
			return invalidParameter("The subnet %s is not in the Availability Zone %s.", id, zoneName)
		}
	case zoneName != "":
		z, _ := s.net.zone(zoneName)
		spec.subnet = s.net.subnetIn(z.name)
	default:
		for _, z := range s.net.zones {
			if s.soldIn(spec.typ.Name, z) {
				spec.subnet = s.net.subnetIn(z.name)
				break
			}
		}
		if spec.subnet == nil {
			spec.subnet = s.net.subnets[0]
		}
	}
	return nil
}

// resolveGroups takes the groups of the first interface, else of the instance,
// else the VPC's default one.
func (s *Server) resolveGroups(l layers, spec *launchSpec) error {
	spec.groups = l.strs("NetworkInterface.1.SecurityGroupId")
	if len(spec.groups) == 0 {
		spec.groups = l.strs("SecurityGroupId")
	}
	for _, id := range spec.groups {
		if s.net.group(id) == nil {
			return fail("InvalidGroup.NotFound", "The security group '%s' does not exist in VPC '%s'", id, s.net.vpcID)
		}
	}
	if len(spec.groups) == 0 {
		spec.groups = []string{s.net.groups[len(s.net.groups)-1].id}
	}
	return nil
}

func (s *Server) resolveProfile(l layers, spec *launchSpec) error {
	name, arn := l.str("IamInstanceProfile.Name"), l.str("IamInstanceProfile.Arn")
	if arn != "" {
		name = arn[strings.LastIndexByte(arn, '/')+1:]
	}
	if name == "" {
		return nil
	}
	p := s.profiles[name]
	switch {
	case p == nil && arn != "":
		return invalidParameter("Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", arn)
	case p == nil || s.clock.Now().Before(p.visible):
		return invalidParameter("Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", name)
	}
	spec.profile, spec.profileARN = name, s.profileARN(p)
	return nil
}

func (s *Server) resolveMarket(l layers, spec *launchSpec) error {
	switch kind := l.str("InstanceMarketOptions.MarketType"); kind {
	case "":
	case Spot:
		spec.spot = true
	case marketBlock, marketInterruptible:
		if l.str("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId") == "" {
			return fail("InvalidParameterCombination", "Market type '%s' needs the capacity reservation to launch into.", kind)
		}
		spec.market = kind
	default:
		return invalidParameter("Invalid market type '%s'.", kind)
	}
	text := l.str("InstanceMarketOptions.SpotOptions.MaxPrice")
	if text == "" {
		text = l.str("MaxPrice")
	}
	if text == "" {
		return nil
	}
	price, err := strconv.ParseFloat(text, 64)
	if err != nil || price <= 0 {
		return fail("InvalidParameterValue", "Invalid value '%s' for the maximum price.", text)
	}
	spec.maxPrice = int64(math.Round(price * 1e6))
	return nil
}

func (s *Server) resolvePlacement(l layers, spec *launchSpec) error {
	spec.capacityPreference = l.str("CapacityReservationSpecification.CapacityReservationPreference")
	spec.capacityTarget = l.str("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId")
	if id := spec.capacityTarget; id != "" && s.reservations[id] == nil {
		return fail("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", id)
	}
	spec.group = l.str("Placement.GroupName")
	if id := l.str("Placement.GroupId"); id != "" {
		for _, g := range s.groups {
			if g.id == id {
				spec.group = g.name
			}
		}
		if spec.group == "" {
			return fail("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", id)
		}
	}
	if spec.group == "" {
		return nil
	}
	g := s.groups[spec.group]
	if g == nil {
		return fail("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", spec.group)
	}
	if g.strategy == "cluster" && !spec.typ.PlacementGroups {
		return invalidParameter("The instance type %s is not supported in a cluster placement group.", spec.typ.Name)
	}
	return nil
}
