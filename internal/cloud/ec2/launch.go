package ec2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// maxRounds bounds how many fleets one Launch tries: when all offerings of a
	// fleet are out, the next takes those that are left, as on-demand after spot.
	maxRounds = 3

	// visibleWithin is how long EC2 may take to show an instance in lists after the
	// call that launched it. It promises no figure; seconds are usual.
	visibleWithin = 30 * time.Second

	// predecessorsList is how old a list may be in which to look for what a predecessor
	// launched: it did so before this process began. Were it missed, the client token
	// would still keep it from being launched again.
	predecessorsList = 10 * time.Second

	// launchMemory is how long a token's outcome is remembered. Nobody launches by a
	// claim that is older.
	launchMemory = time.Hour
)

// Launch is as in cloud.Provider.
//
// A token launches once. EC2's client token is made from it: the same request gets
// the same answer again, and another request with a token that was used is refused.
// A request differs from an earlier one when prices or shortages moved, as after a
// restart, and then the instances are found by the tag that holds the token. A fleet
// that is known to have launched nothing used up its client token, so that the next
// fleet has the next number behind it.
func (p *Provider) Launch(ctx context.Context, req cloud.LaunchRequest) (cloud.Instance, error) {
	if req.Token == "" || req.Claim == nil || req.Class == nil {
		return cloud.Instance{}, fmt.Errorf("launch: the request has no token, claim or class")
	}
	l := p.launches.of(req.Token, p.clock.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.instances) > 0 {
		return l.instances[0], nil
	}
	err := p.lookBack(ctx, req, l, req.Token, 1, false)
	if err == nil && len(l.instances) == 0 && req.Fleet != nil && !l.begun {
		l.instances, err = p.join(ctx, req)
	}
	if err == nil && len(l.instances) == 0 {
		l.instances, err = p.launch(ctx, req, l, order{token: req.Token, count: 1, tags: p.instanceTags(req.Class, req.Claim)})
	}
	if err == nil {
		return l.instances[0], nil
	}
	var short *cloud.InsufficientCapacityError
	if errors.As(err, &short) {
		return cloud.Instance{}, err
	}
	return cloud.Instance{}, fmt.Errorf("launch %s: %w", req.Claim.Name, err)
}

// lookBack looks for what was launched by the token before this process began, if the
// claim was there before: it may have been launched by who was here before us. Claims of
// the first minute count: clocks differ. If sure is set it looks whenever the claim came.
func (p *Provider) lookBack(ctx context.Context, req cloud.LaunchRequest, l *launchState, token string, count int, sure bool) error {
	if l.looked || !sure && !req.Claim.CreationTimestamp.Time.Before(p.started.Add(time.Minute)) {
		return nil
	}
	found, err := p.findByToken(ctx, token, predecessorsList)
	if err != nil {
		return err
	}
	l.looked = true
	if count == 1 && len(found) > 0 || len(found) == count {
		l.instances = found[:count]
	}
	l.begun = l.begun || len(found) > 0
	return nil
}

// order is what makes one launch differ from another of the same request.
type order struct {
	token string
	count int
	// tags are on all that it launches.
	tags map[string]string
}

// launch tries one fleet after another until one launches or nothing is left. It returns
// as many instances as were ordered, or fewer if there weren't more, sorted by ID.
func (p *Provider) launch(ctx context.Context, req cloud.LaunchRequest, l *launchState, o order) ([]cloud.Instance, error) {
	shortage := &cloud.InsufficientCapacityError{Reason: "NoOfferingAvailable"}
	for range maxRounds {
		short, _ := p.unavailable.at(p.clock.Now())
		short.away = awayFrom(req.Class.Status.Subnets, p.shifted(ctx))
		full := short.of(req.Class)
		plan := planFleet(req.Claim, req.Class, req.Types, short)
		if len(plan.candidates) == 0 {
			if full && shortage.Offerings == 0 {
				shortage.Reason = codeNoAddresses
			}
			return nil, shortage
		}
		fleet, err := p.makeFleet(ctx, req, plan, short, o)
		if err != nil {
			return nil, err
		}
		if fleet.overrides == 0 {
			shortage.Reason = codeNoAddresses // every subnet of these zones is full
			return nil, shortage
		}
		shortage.Offerings += fleet.overrides
		out, found, err := p.createFleet(ctx, req, fleet, l, o)
		if err != nil || len(found) > 0 {
			return found, err
		}
		result := readFleet(out.Instances, out.Errors, plan.capacityType, fleet.reservationOf)
		now := p.clock.Now()
		for _, k := range result.short {
			if k.zone != "" {
				k.group = short.group
			}
			p.unavailable.mark(k, now)
		}
		for _, id := range result.subnets {
			p.unavailable.markSubnet(id, now)
		}
		if len(result.launched) > 0 {
			return p.launched(req, plan, fleet, result.launched, short.group, o), nil
		}
		l.fleets++
		if result.other != nil {
			return nil, p.settleProfile(req.Class, fleetError(*result.other))
		}
		if result.capacity == "" {
			return nil, fmt.Errorf("create fleet: EC2 launched nothing and gave no reason")
		}
		shortage.Reason = result.capacity
	}
	return nil, shortage
}

// fleetError is an item of a fleet's error set as an error of the call.
func fleetError(e ec2types.CreateFleetError) error {
	code, message := deref(e.ErrorCode), clean(deref(e.ErrorMessage))
	err := error(&apiError{code: code, message: message})
	if isTerminal(code, message) {
		err = &cloud.TerminalError{Err: err}
	}
	return fmt.Errorf("create fleet: %w", err)
}

// fleet is a CreateFleet that is ready to be sent, and how to read its answer.
type fleet struct {
	input     *ec2.CreateFleetInput
	overrides int
	templates []string
	// images holds each type's image, zones each subnet's zone.
	images map[string]string
	zones  map[string]string
	// reservations holds the reservation of a type in a zone.
	reservations map[spotPool]string
}

func (f *fleet) reservationOf(instanceType, zone string) string {
	return f.reservations[spotPool{instanceType, zone}]
}

// allFailed is an error set in which every override failed by the code.
func (f *fleet) allFailed(code string) []ec2types.CreateFleetError {
	var out []ec2types.CreateFleetError
	for _, c := range f.input.LaunchTemplateConfigs {
		for _, o := range c.Overrides {
			out = append(out, ec2types.CreateFleetError{ErrorCode: &code, LaunchTemplateAndOverrides: &ec2types.LaunchTemplateAndOverridesResponse{
				Overrides: &ec2types.FleetLaunchTemplateOverrides{
					InstanceType: o.InstanceType, AvailabilityZone: o.AvailabilityZone, SubnetId: o.SubnetId,
				},
			}})
		}
	}
	return out
}

// templateKey is what candidates that share a launch template have in common.
type templateKey struct {
	image       string
	maxPods     int64
	efas, cards int64
	reservation string
}

// makeFleet sees to the launch templates and writes the request.
func (p *Provider) makeFleet(ctx context.Context, req cloud.LaunchRequest, plan fleetPlan, short shortages, order order) (*fleet, error) {
	found, err := p.findSubnets(ctx, req.Class)
	if err != nil {
		return nil, err
	}
	subnets := subnetByZone(found, p.addresses.taken(p.clock.Now(), p.subnets.ttl), short)
	f := &fleet{images: map[string]string{}, zones: subnetZones(found), reservations: map[spotPool]string{}}

	groups := map[templateKey][]ec2types.FleetLaunchTemplateOverridesRequest{}
	var keys []templateKey
	for _, c := range plan.candidates {
		subnet, ok := subnets[c.zone]
		if !ok {
			continue
		}
		image, ok := cloud.ImageFor(req.Class.Status.AMIs, c.instance.Labels)
		if !ok {
			continue
		}
		pods := c.instance.Capacity.Pods().Value()
		key := templateKey{image: image, maxPods: pods, reservation: c.reservation}
		if wantsEFA(req.Claim) && len(req.Class.Spec.NetworkInterfaces) == 0 {
			key.efas, key.cards = p.efas(ctx, c.instance)
		}
		if _, seen := groups[key]; !seen {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(c.instance.Name), SubnetId: &subnet, AvailabilityZone: new(c.zone),
			ImageId: &image, Priority: new(dollars(c.microUSD)),
		})
		f.overrides++
		f.images[c.instance.Name] = image
		f.reservations[spotPool{c.instance.Name, c.zone}] = c.reservation
	}
	if f.overrides == 0 {
		return f, nil
	}
	names, err := p.fleetTemplates(ctx, req, plan, keys)
	if err != nil {
		return nil, err
	}
	f.templates = names
	f.input = fleetInput(plan, order.count, order.tags, req.Class.Spec.Context)
	for i, key := range keys {
		f.input.LaunchTemplateConfigs = append(f.input.LaunchTemplateConfigs, ec2types.FleetLaunchTemplateConfigRequest{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateName: &names[i], Version: new("$Latest"),
			},
			Overrides: groups[key],
		})
	}
	return f, nil
}

// fleetTemplates makes the launch templates that are missing, at once.
func (p *Provider) fleetTemplates(ctx context.Context, req cloud.LaunchRequest, plan fleetPlan, keys []templateKey) ([]string, error) {
	f := family(req.Class.AMIFamily())
	info, err := p.cluster(ctx, f)
	if err != nil {
		return nil, err
	}
	size, err := p.sizingOf(req.Class)
	if err != nil {
		return nil, &cloud.TerminalError{Err: err}
	}
	labels := p.registeredLabels(req, plan.capacityType, f)
	names, errs := make([]string, len(keys)), make([]error, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		data, err := userData(bootstrap{
			family: f, cluster: info.cluster, kubelet: size.kubelet, maxPods: key.maxPods, labels: labels,
			taints: nodeTaints(req.Taints, req.StartupTaints), raid0: size.raid0, custom: deref(req.Class.Spec.UserData),
		})
		if err != nil {
			return nil, &cloud.TerminalError{Err: err}
		}
		in := templateInput{
			class: req.Class, capacityType: plan.capacityType, image: key.image, userData: data,
			efas: key.efas, cards: key.cards, reservation: key.reservation, market: plan.market, ipv6: info.ipv6,
			tags: p.sharedTags(req.Class, req.Claim),
		}
		wg.Go(func() { names[i], errs[i] = p.ensureTemplate(ctx, in) })
	}
	wg.Wait()
	return names, errors.Join(errs...)
}

// registeredLabels are those that the kubelet registers with: the request's, and
// what this launch decides.
func (p *Provider) registeredLabels(req cloud.LaunchRequest, capacityType string, f family) map[string]string {
	labels := kubeletLabels(req.Labels)
	labels[karpenter.LabelCapacityType] = capacityType
	labels[aws.LabelNodeClass] = req.Class.Name
	if f.registersWithTaints() {
		labels[karpenter.LabelDoNotSyncTaints] = "true"
	}
	return labels
}

// sharedTags are on everything that is made for the class and pool.
func (p *Provider) sharedTags(class *aws.EC2NodeClass, claim *karpenter.NodeClaim) map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, class.Spec.Tags)
	maps.Copy(tags, map[string]string{
		aws.TagNodePool:                          claim.Labels[karpenter.LabelNodePool],
		aws.TagNodeClass:                         class.Name,
		aws.TagEKSClusterName:                    p.cfg.ClusterName,
		aws.TagClusterPrefix + p.cfg.ClusterName: "owned",
	})
	return tags
}

// instanceTags are the shared ones and those that tie an instance to its claim.
func (p *Provider) instanceTags(class *aws.EC2NodeClass, claim *karpenter.NodeClaim) map[string]string {
	tags := p.sharedTags(class, claim)
	tags[cloud.TagNodeClaim] = claim.Name
	tags[cloud.TagNodeClaimUID] = string(claim.UID)
	if tags[aws.TagName] == "" {
		tags[aws.TagName] = claim.Name
	}
	return tags
}

// fleetInput writes all of the request but its templates and client token.
func fleetInput(plan fleetPlan, count int, tags map[string]string, context *string) *ec2.CreateFleetInput {
	in := &ec2.CreateFleetInput{
		Type:    ec2types.FleetTypeInstant,
		Context: context,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       new(int32(count)),
			DefaultTargetCapacityType: ec2types.DefaultTargetCapacityTypeOnDemand,
		},
	}
	for _, kind := range []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeFleet} {
		in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: ec2Tags(tags)})
	}
	switch {
	case plan.market == ec2types.MarketTypeInterruptibleCapacityReservation:
		// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-launch-instances-interruptible-cr-walkthrough.html
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeReservedCapacity
		in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{
			ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation},
		}
	case plan.market == ec2types.MarketTypeCapacityBlock:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeCapacityBlock
	case plan.capacityType == cloud.Spot:
		in.TargetCapacitySpecification.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeSpot
		// Of the pools least likely to be interrupted, the cheapest.
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
	default:
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice}
	}
	return in
}

// createFleet sends the request. It returns the answer, or the instances that an
// earlier request with the same token launched.
func (p *Provider) createFleet(ctx context.Context, req cloud.LaunchRequest, f *fleet, l *launchState, o order) (*ec2.CreateFleetOutput, []cloud.Instance, error) {
	f.input.ClientToken = new(fmt.Sprintf("%.58s-%d", o.token, l.fleets))
	l.begun = true
	out, err := p.ec2.CreateFleet(ctx, f.input)
	switch code(err) {
	case "":
		if err != nil {
			return nil, nil, failed("create fleet", err)
		}
		return out, nil, nil
	case codeTemplateNotFound, codeTemplateIDGone:
		// Somebody deleted a template that we believe is there. The next attempt
		// makes it again.
		for _, name := range f.templates {
			p.templates.forget(name)
		}
		return nil, nil, failed("create fleet", err)
	case codeTokenMismatch:
		found, err := p.earlierLaunch(ctx, l, o)
		return nil, found, err
	}
	if isCapacity(code(err)) {
		// EC2 says so of the whole call what it usually says of each override.
		return &ec2.CreateFleetOutput{Errors: f.allFailed(code(err))}, nil, nil
	}
	return nil, nil, p.settleProfile(req.Class, failed("create fleet", err))
}

// earlierLaunch finds what another request with the same client token launched. If
// it can't be seen for long enough, that fleet launched nothing or its instance is
// gone, and the next attempt takes the next client token. Of several instances all must
// be seen: whose each is follows from its place among all. If they can't, the fleet is
// given up.
func (p *Provider) earlierLaunch(ctx context.Context, l *launchState, o order) ([]cloud.Instance, error) {
	p.lists.forget(struct{}{})
	found, err := p.findByToken(ctx, o.token, 0)
	if err != nil {
		return nil, err
	}
	if o.count == 1 && len(found) > 0 || len(found) == o.count {
		return found[:o.count], nil
	}
	now := p.clock.Now()
	if l.missing.IsZero() {
		l.missing = now
	}
	if now.Sub(l.missing) >= visibleWithin {
		l.missing = time.Time{}
		l.fleets++
		if o.count > 1 {
			return nil, errGivenUp
		}
	}
	return nil, fmt.Errorf("an earlier launch for this claim is under way, of which %d instances of %d can be seen yet", len(found), o.count)
}

// errGivenUp is of a fleet that not all instances can be seen of.
var errGivenUp = errors.New("the fleet is given up")

// findByToken returns the instances that carry the token, a claim's UID or a fleet's, as
// a tag, sorted by ID. A list of the age will do.
func (p *Provider) findByToken(ctx context.Context, token string, age time.Duration) ([]cloud.Instance, error) {
	list, known := p.lists.peek(struct{}{}, age)
	if !known {
		var err error
		if list, err = p.Instances(ctx); err != nil {
			return nil, err
		}
	}
	var out []cloud.Instance
	for _, i := range list {
		if i.Tags[cloud.TagNodeClaimUID] == token || i.Tags[cloud.TagFleet] == token {
			out = append(out, i)
		}
	}
	return out, nil
}

// launched reads the instances out of the answer, sorted by ID.
func (p *Provider) launched(req cloud.LaunchRequest, plan fleetPlan, f *fleet, got []fleetInstance, group string, o order) []cloud.Instance {
	now := p.clock.Now()
	var groups []string
	for _, g := range req.Class.Status.SecurityGroups {
		groups = append(groups, g.ID)
	}
	slices.Sort(groups)
	out := make([]cloud.Instance, len(got))
	for n, g := range got {
		i := cloud.Instance{
			ID: g.id, Type: string(g.of.InstanceType), CapacityType: plan.capacityType, SecurityGroupIDs: groups,
			State: string(ec2types.InstanceStateNamePending), LaunchTime: now, Tags: o.tags, Profile: req.Class.Status.InstanceProfile,
		}
		if v := overridesOf(g.of.LaunchTemplateAndOverrides); v != nil {
			i.SubnetID, i.Zone, i.ImageID = deref(v.SubnetId), deref(v.AvailabilityZone), deref(v.ImageId)
		}
		if i.Zone == "" {
			i.Zone = f.zones[i.SubnetID]
		}
		if i.ImageID == "" {
			i.ImageID = f.images[i.Type]
		}
		for _, s := range req.Class.Status.Subnets {
			if s.Zone == i.Zone {
				i.ZoneID = s.ZoneID
			}
		}
		i.ProviderID = providerID(i.Zone, i.ID)
		if i.ReservationID = f.reservationOf(i.Type, i.Zone); i.ReservationID != "" {
			p.reserved.take(i.ReservationID)
		}
		switch {
		case o.count == 1:
			i.ClaimUID = req.Token
		case n < len(req.Fleet.Members) && req.Fleet.Members[n] != nil:
			i.ClaimUID = string(req.Fleet.Members[n].UID)
		}
		p.addresses.take(i.SubnetID, now)
		p.unavailable.had(offeringKey{i.CapacityType, i.Type, i.Zone, i.ReservationID, group})
		p.recent.launched(i, now)
		out[n] = i
	}
	return out
}

func wantsEFA(claim *karpenter.NodeClaim) bool {
	q := claim.Spec.Resources.Requests[aws.ResourceEFA]
	return q.Sign() > 0
}

// efas are the EFA interfaces and network cards of a type.
func (p *Provider) efas(ctx context.Context, t *cloud.InstanceType) (efas, cards int64) {
	q := t.Capacity[aws.ResourceEFA]
	cards = 1
	if sold, _, ok := p.machines.soon(ctx); ok {
		for i := range sold.machines {
			if sold.machines[i].name == t.Name {
				cards = sold.machines[i].cards
			}
		}
	}
	return q.Value(), cards
}

// addressLog counts the addresses that launches took since the subnets were read.
type addressLog struct {
	mu    sync.Mutex
	takes []addressTake
}

type addressTake struct {
	subnet string
	at     time.Time
}

// addressesPerNode is what a new node takes of its subnet soon: its own address and
// those of the pods it was launched for. The VPC CNI keeps a whole interface warm,
// of 10 addresses on the smaller types.
const addressesPerNode = 10

func (l *addressLog) take(subnet string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes = append(l.takes, addressTake{subnet, now})
}

// taken counts the addresses taken within the time that subnets are read again after.
func (l *addressLog) taken(now time.Time, within time.Duration) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes = slices.DeleteFunc(l.takes, func(t addressTake) bool { return now.Sub(t.at) > within })
	out := map[string]int{}
	for _, t := range l.takes {
		out[t.subnet] += addressesPerNode
	}
	return out
}
