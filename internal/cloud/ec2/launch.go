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
// restart, and then the instance is found by the tag that holds the token. A fleet
// that is known to have launched nothing used up its client token, so that the next
// fleet has the next number behind it.
func (p *Provider) Launch(ctx context.Context, req cloud.LaunchRequest) (cloud.Instance, error) {
	if req.Token == "" || req.Claim == nil || req.Class == nil {
		return cloud.Instance{}, fmt.Errorf("launch: the request has no token, claim or class")
	}
	l := p.launches.of(req.Token, p.clock.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.instance != nil {
		return *l.instance, nil
	}
	// A claim that was there before us may have been launched by who was here before
	// us. Claims of the first minute count: clocks differ.
	if !l.looked && req.Claim.CreationTimestamp.Time.Before(p.started.Add(time.Minute)) {
		found, err := p.findByToken(ctx, req.Token, predecessorsList)
		if err != nil {
			return cloud.Instance{}, fmt.Errorf("launch %s: %w", req.Claim.Name, err)
		}
		l.looked = true
		if found != nil {
			l.instance = found
			return *found, nil
		}
	}
	instance, err := p.launch(ctx, req, l)
	if err != nil {
		var short *cloud.InsufficientCapacityError
		if errors.As(err, &short) {
			return cloud.Instance{}, err
		}
		return cloud.Instance{}, fmt.Errorf("launch %s: %w", req.Claim.Name, err)
	}
	l.instance = &instance
	p.recent.launched(instance, p.clock.Now())
	return instance, nil
}

// launch tries one fleet after another until one launches or nothing is left.
func (p *Provider) launch(ctx context.Context, req cloud.LaunchRequest, l *launchState) (cloud.Instance, error) {
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
			return cloud.Instance{}, shortage
		}
		fleet, err := p.makeFleet(ctx, req, plan, short)
		if err != nil {
			return cloud.Instance{}, err
		}
		if fleet.overrides == 0 {
			shortage.Reason = codeNoAddresses // every subnet of these zones is full
			return cloud.Instance{}, shortage
		}
		shortage.Offerings += fleet.overrides
		out, found, err := p.createFleet(ctx, req, fleet, l)
		if err != nil || found != nil {
			return deref(found), err
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
		if result.instance != nil {
			i := p.launched(req, plan, fleet, *result.instance)
			p.unavailable.had(offeringKey{i.CapacityType, i.Type, i.Zone, i.ReservationID, short.group})
			return i, nil
		}
		l.fleets++
		if result.other != nil {
			return cloud.Instance{}, p.settleProfile(req.Class, fleetError(*result.other))
		}
		if result.capacity == "" {
			return cloud.Instance{}, fmt.Errorf("create fleet: EC2 launched nothing and gave no reason")
		}
		shortage.Reason = result.capacity
	}
	return cloud.Instance{}, shortage
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
func (p *Provider) makeFleet(ctx context.Context, req cloud.LaunchRequest, plan fleetPlan, short shortages) (*fleet, error) {
	found, err := p.findSubnets(ctx, req.Class)
	if err != nil {
		return nil, err
	}
	subnets := subnetByZone(found, p.addresses.taken(p.clock.Now(), p.subnets.ttl), short)
	f := &fleet{images: map[string]string{}, zones: subnetZones(found), reservations: map[spotPool]string{}}

	groups := map[templateKey][]ec2types.FleetLaunchTemplateOverridesRequest{}
	var order []templateKey
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
			order = append(order, key)
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
	names, err := p.fleetTemplates(ctx, req, plan, order)
	if err != nil {
		return nil, err
	}
	f.templates = names
	f.input = fleetInput(plan, p.instanceTags(req), req.Class.Spec.Context)
	for i, key := range order {
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
func (p *Provider) instanceTags(req cloud.LaunchRequest) map[string]string {
	tags := p.sharedTags(req.Class, req.Claim)
	tags[cloud.TagNodeClaim] = req.Claim.Name
	tags[cloud.TagNodeClaimUID] = req.Token
	if tags[aws.TagName] == "" {
		tags[aws.TagName] = req.Claim.Name
	}
	return tags
}

// fleetInput writes all of the request but its templates and client token.
func fleetInput(plan fleetPlan, tags map[string]string, context *string) *ec2.CreateFleetInput {
	in := &ec2.CreateFleetInput{
		Type:    ec2types.FleetTypeInstant,
		Context: context,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity:       new(int32(1)),
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

// createFleet sends the request. It returns the answer, or the instance that an
// earlier request with the same token launched.
func (p *Provider) createFleet(ctx context.Context, req cloud.LaunchRequest, f *fleet, l *launchState) (*ec2.CreateFleetOutput, *cloud.Instance, error) {
	f.input.ClientToken = new(fmt.Sprintf("%.58s-%d", req.Token, l.fleets))
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
		found, err := p.earlierLaunch(ctx, req, l)
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
// gone, and the next attempt takes the next client token.
func (p *Provider) earlierLaunch(ctx context.Context, req cloud.LaunchRequest, l *launchState) (*cloud.Instance, error) {
	p.lists.forget(struct{}{})
	found, err := p.findByToken(ctx, req.Token, 0)
	if err != nil || found != nil {
		return found, err
	}
	now := p.clock.Now()
	if l.missing.IsZero() {
		l.missing = now
	}
	if now.Sub(l.missing) >= visibleWithin {
		l.missing = time.Time{}
		l.fleets++
	}
	return nil, fmt.Errorf("an earlier launch for this claim is under way and its instance can't be seen yet")
}

// findByToken returns the instance that carries the token as a tag, or nil. A list of
// the age will do.
func (p *Provider) findByToken(ctx context.Context, token string, age time.Duration) (*cloud.Instance, error) {
	list, known := p.lists.peek(struct{}{}, age)
	if !known {
		var err error
		if list, err = p.Instances(ctx); err != nil {
			return nil, err
		}
	}
	for i := range list {
		if list[i].Tags[cloud.TagNodeClaimUID] == token {
			return &list[i], nil
		}
	}
	return nil, nil
}

// launched reads the instance out of the answer.
func (p *Provider) launched(req cloud.LaunchRequest, plan fleetPlan, f *fleet, got ec2types.CreateFleetInstance) cloud.Instance {
	i := cloud.Instance{
		ID: got.InstanceIds[0], Type: string(got.InstanceType), CapacityType: plan.capacityType,
		State: string(ec2types.InstanceStateNamePending), LaunchTime: p.clock.Now(), Tags: p.instanceTags(req), Profile: req.Class.Status.InstanceProfile,
	}
	if o := overridesOf(got.LaunchTemplateAndOverrides); o != nil {
		i.SubnetID, i.Zone, i.ImageID = deref(o.SubnetId), deref(o.AvailabilityZone), deref(o.ImageId)
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
	for _, g := range req.Class.Status.SecurityGroups {
		i.SecurityGroupIDs = append(i.SecurityGroupIDs, g.ID)
	}
	slices.Sort(i.SecurityGroupIDs)
	i.ProviderID = providerID(i.Zone, i.ID)
	if i.ReservationID = f.reservationOf(i.Type, i.Zone); i.ReservationID != "" {
		p.reserved.take(i.ReservationID)
	}
	p.addresses.take(i.SubnetID, p.clock.Now())
	return i
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

// launchState is what is known of one token. Its lock is held while it launches, so
// that a token launches once at a time.
type launchState struct {
	mu       sync.Mutex
	since    time.Time
	looked   bool
	instance *cloud.Instance
	// fleets counts those that are known to have launched nothing.
	fleets int
	// missing is since when an earlier launch's instance is looked for.
	missing time.Time
}

// launchLog holds the states of recent tokens.
type launchLog struct {
	mu     sync.Mutex
	states map[string]*launchState
	pruned time.Time
}

func (l *launchLog) of(token string, now time.Time) *launchState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.states == nil {
		l.states = map[string]*launchState{}
	}
	if now.Sub(l.pruned) > launchMemory {
		maps.DeleteFunc(l.states, func(_ string, s *launchState) bool { return now.Sub(s.since) > launchMemory })
		l.pruned = now
	}
	s := l.states[token]
	if s == nil {
		s = &launchState{since: now}
		l.states[token] = s
	}
	return s
}

// launched returns the instance that the token launched, if it is known.
func (l *launchLog) launched(token string) (cloud.Instance, bool) {
	l.mu.Lock()
	s := l.states[token]
	l.mu.Unlock()
	if s == nil {
		return cloud.Instance{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return deref(s.instance), s.instance != nil
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
