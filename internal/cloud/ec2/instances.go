package ec2

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// factsTTL is how old a list of instances may be to tell what hardly ever changes in
// an instance's life: image, subnet, groups, tags.
const factsTTL = time.Minute

// providerID is the instance's name in a Node's spec.providerID.
func providerID(zone, id string) string { return "aws:///" + zone + "/" + id }

// Instances is as in cloud.Provider. Callers within two seconds share one answer;
// what this process launched or terminated shows at once, whether EC2's lists have
// it yet or not.
func (p *Provider) Instances(ctx context.Context) ([]cloud.Instance, error) {
	list, err := p.lists.get(ctx, struct{}{}, p.listInstances)
	if err != nil {
		return nil, err
	}
	return p.recent.merge(list, p.clock.Now()), nil
}

func (p *Provider) listInstances(ctx context.Context) ([]cloud.Instance, error) {
	var out []cloud.Instance
	pages := ec2.NewDescribeInstancesPaginator(p.ec2, &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{
			filter("tag-key", aws.TagNodePool),
			filter("tag:"+aws.TagEKSClusterName, p.cfg.ClusterName),
			filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down"),
		},
		MaxResults: new(int32(1000)),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed("list instances", err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out = append(out, instanceOf(i))
			}
		}
	}
	slices.SortFunc(out, func(a, b cloud.Instance) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// instanceOf reads EC2's description.
func instanceOf(i ec2types.Instance) cloud.Instance {
	out := cloud.Instance{
		ID: deref(i.InstanceId), Type: string(i.InstanceType), ImageID: deref(i.ImageId), SubnetID: deref(i.SubnetId),
		LaunchTime: deref(i.LaunchTime), CapacityType: cloud.OnDemand, Tags: make(map[string]string, len(i.Tags)),
	}
	if i.State != nil {
		out.State = string(i.State.Name)
	}
	if i.Placement != nil {
		out.Zone, out.ZoneID = deref(i.Placement.AvailabilityZone), deref(i.Placement.AvailabilityZoneId)
	}
	out.ProviderID = providerID(out.Zone, out.ID)
	switch {
	case deref(i.CapacityReservationId) != "":
		out.CapacityType, out.ReservationID = cloud.Reserved, deref(i.CapacityReservationId)
	case deref(i.SpotInstanceRequestId) != "" || i.InstanceLifecycle == ec2types.InstanceLifecycleTypeSpot:
		out.CapacityType = cloud.Spot
	}
	if i.IamInstanceProfile != nil {
		arn := deref(i.IamInstanceProfile.Arn)
		out.Profile = arn[strings.LastIndexByte(arn, '/')+1:]
	}
	for _, g := range i.SecurityGroups {
		out.SecurityGroupIDs = append(out.SecurityGroupIDs, deref(g.GroupId))
	}
	slices.Sort(out.SecurityGroupIDs)
	for _, t := range i.Tags {
		out.Tags[deref(t.Key)] = deref(t.Value)
	}
	out.ClaimUID = out.Tags[cloud.TagNodeClaimUID]
	return out
}

// Terminate is as in cloud.Provider. Terminations that come close together go out as
// one call.
func (p *Provider) Terminate(ctx context.Context, id string) error {
	if p.recent.ending(id, p.clock.Now()) {
		return nil // told already
	}
	if err := p.terminates.add(ctx, id); err != nil {
		return fmt.Errorf("terminate instance %s: %w", id, err)
	}
	if free, _ := p.reserved.free(); len(free) > 0 {
		// It may leave a reservation, which is paid for while it is empty. Classes are
		// looked at when their claims end.
		p.reservations.clear()
	}
	return nil
}

// terminateAll ends the instances. EC2 takes all of a call's or none, so that one
// that is gone or protected would keep the others alive: after a refusal for one's
// sake each is ended by itself. Any other failure would meet each alone as well.
func (p *Provider) terminateAll(ctx context.Context, ids []string) []error {
	unique := slices.Clone(ids)
	slices.Sort(unique)
	unique = slices.Compact(unique)
	errs := make([]error, len(ids))
	err := p.terminate(ctx, unique)
	if err == nil || len(unique) == 1 || !isAboutOne(code(err)) {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	single := map[string]error{}
	for _, id := range unique {
		single[id] = p.terminate(ctx, []string{id})
	}
	for i, id := range ids {
		errs[i] = single[id]
	}
	return errs
}

func (p *Provider) terminate(ctx context.Context, ids []string) error {
	_, err := p.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	switch c := code(err); {
	case err == nil:
	case len(ids) == 1 && (c == codeInstanceNotFound || c == codeInstanceBadID):
		if p.recent.starting(ids[0], p.clock.Now()) {
			return fmt.Errorf("EC2 doesn't know the instance yet")
		}
		return nil // gone
	default:
		return classify(err)
	}
	now := p.clock.Now()
	for _, id := range ids {
		p.recent.ended(id, now)
	}
	return nil
}

// Reboot is as in cloud.Provider. EC2 ignores it for an instance that has ended.
func (p *Provider) Reboot(ctx context.Context, id string) error {
	_, err := p.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}})
	return failed("reboot instance "+id, err)
}

// Tag is as in cloud.Provider. Tags that the instance is known to have cost no call.
func (p *Provider) Tag(ctx context.Context, id string, tags map[string]string) error {
	missing := maps.Clone(tags)
	list, _ := p.lists.peek(struct{}{}, factsTTL)
	for _, i := range p.recent.merge(list, p.clock.Now()) {
		if i.ID == id {
			maps.DeleteFunc(missing, func(k, v string) bool { return i.Tags[k] == v })
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err := p.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: ec2Tags(missing)})
	if err != nil {
		return failed("tag instance "+id, err)
	}
	return nil
}

// Drifted is as in cloud.Provider. What it compares hardly ever changes in an
// instance's life: a list that is a minute old, or the answer to the launch, will do.
func (p *Provider) Drifted(ctx context.Context, class *aws.EC2NodeClass, claim *karpenter.NodeClaim) (string, error) {
	is := func(i cloud.Instance) bool { return i.ProviderID == claim.Status.ProviderID }
	list, known := p.lists.peek(struct{}{}, factsTTL)
	if at := slices.IndexFunc(list, is); at >= 0 {
		return cloud.Drifted(class, claim, list[at]), nil
	}
	if i, ok := p.launches.launched(string(claim.UID)); ok && is(i) {
		if p.clock.Since(i.LaunchTime) < factsTTL+visibleWithin {
			return cloud.Drifted(class, claim, i), nil
		}
		if known {
			return "", nil // the list is younger than it and doesn't have it: it is gone
		}
	}
	list, err := p.Instances(ctx)
	if err != nil {
		return "", fmt.Errorf("compare NodeClaim %s with its instance: %w", claim.Name, err)
	}
	if at := slices.IndexFunc(list, is); at >= 0 {
		return cloud.Drifted(class, claim, list[at]), nil
	}
	return "", nil
}

// CleanClass is as in cloud.Provider.
func (p *Provider) CleanClass(ctx context.Context, class *aws.EC2NodeClass) error {
	every := func(iamtypes.InstanceProfile) (bool, error) { return true, nil }
	if err := p.deleteProfiles(ctx, class, every); err != nil {
		return err
	}
	if err := p.deleteTemplates(ctx, class, func(ec2types.LaunchTemplate) bool { return true }); err != nil {
		return err
	}
	p.checks.forget(class.UID)
	p.mu.Lock()
	delete(p.types, class.Name)
	p.mu.Unlock()
	return nil
}

// recentInstances bridges the time until EC2's lists show what was done.
type recentInstances struct {
	mu     sync.Mutex
	starts map[string]recentStart
	ends   map[string]time.Time
}

type recentStart struct {
	instance cloud.Instance
	at       time.Time
	// listed is set once EC2 has shown it. From then on it tells no more than whose it
	// is, until EC2 shows that too.
	listed bool
}

func (r *recentInstances) launched(i cloud.Instance, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.starts == nil {
		r.starts = map[string]recentStart{}
	}
	r.starts[i.ID] = recentStart{instance: i, at: now}
}

func (r *recentInstances) ended(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends == nil {
		r.ends = map[string]time.Time{}
	}
	r.ends[id] = now
}

// starting says whether the instance was launched a moment ago.
func (r *recentInstances) starting(id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.starts[id]
	return ok && now.Sub(s.at) < visibleWithin
}

// ending says whether the instance was told to end a moment ago.
func (r *recentInstances) ending(id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, told := r.ends[id]
	return told && now.Sub(at) < visibleWithin
}

// merge adds what was launched and isn't in the list yet, and says of what was ended
// that it is shutting down. list isn't changed.
func (r *recentInstances) merge(list []cloud.Instance, now time.Time) []cloud.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.starts, func(_ string, s recentStart) bool { return now.Sub(s.at) >= visibleWithin })
	maps.DeleteFunc(r.ends, func(_ string, at time.Time) bool { return now.Sub(at) >= visibleWithin })
	if len(r.starts) == 0 && len(r.ends) == 0 {
		return list
	}
	out := slices.Clone(list)
	for id, s := range r.starts {
		if _, ended := r.ends[id]; ended {
			continue
		}
		at, listed := slices.BinarySearchFunc(out, id, func(i cloud.Instance, id string) int { return strings.Compare(i.ID, id) })
		switch {
		case listed && out[at].ClaimUID == "":
			out[at].ClaimUID = s.instance.ClaimUID
			s.listed = true
			r.starts[id] = s
			continue
		case listed || s.listed:
			// What happens to it from here on is EC2's to say.
			delete(r.starts, id)
			continue
		}
		out = slices.Insert(out, at, s.instance)
	}
	for i := range out {
		if _, ended := r.ends[out[i].ID]; ended {
			out[i].State = string(ec2types.InstanceStateNameShuttingDown)
		}
	}
	return out
}
