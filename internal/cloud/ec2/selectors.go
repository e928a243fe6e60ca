package ec2

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/schemas/aws"
)

// tagFilters match all of the tags; the value * matches any.
func tagFilters(tags map[string]string) []ec2types.Filter {
	var out []ec2types.Filter
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if tags[k] == "*" {
			out = append(out, filter("tag-key", k))
		} else {
			out = append(out, filter("tag:"+k, tags[k]))
		}
	}
	return out
}

// query is one Describe call.
type query struct {
	Filters []ec2types.Filter
	Owners  []string
}

func (q query) key() string {
	text, err := json.Marshal(q)
	if err != nil {
		panic("filters can't be written as JSON: " + err.Error()) // they are strings
	}
	return string(text)
}

// subnetQueries are the calls that find what any of the terms matches. Terms by ID
// share one.
func subnetQueries(terms []aws.SubnetSelectorTerm) []query {
	var out []query
	var ids []string
	for _, t := range terms {
		if t.ID != "" {
			ids = append(ids, t.ID)
			continue
		}
		out = append(out, query{Filters: tagFilters(t.Tags)})
	}
	return withValues(out, "subnet-id", ids)
}

func groupQueries(terms []aws.SecurityGroupSelectorTerm) []query {
	var out []query
	var ids, names []string
	for _, t := range terms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.Name != "":
			names = append(names, t.Name)
		default:
			out = append(out, query{Filters: tagFilters(t.Tags)})
		}
	}
	return withValues(withValues(out, "group-id", ids), "group-name", names)
}

func reservationQueries(terms []aws.CapacityReservationSelectorTerm) []query {
	// A reservation that is pending, cancelled or expired has nothing to give.
	active := filter("state", "active")
	var out []query
	var ids []string
	for _, t := range terms {
		if t.ID != "" {
			ids = append(ids, t.ID)
			continue
		}
		filters := append([]ec2types.Filter{active}, tagFilters(t.Tags)...)
		if t.OwnerID != "" {
			filters = append(filters, filter("owner-id", t.OwnerID))
		}
		if t.InstanceMatchCriteria != "" {
			filters = append(filters, filter("instance-match-criteria", t.InstanceMatchCriteria))
		}
		out = append(out, query{Filters: filters})
	}
	if len(ids) > 0 {
		// IDs go into their own parameter, which is exact where a filter isn't offered.
		out = append(out, query{Filters: []ec2types.Filter{active}, Owners: ids})
	}
	return out
}

func withValues(queries []query, name string, values []string) []query {
	if len(values) == 0 {
		return queries
	}
	slices.Sort(values)
	return append(queries, query{Filters: []ec2types.Filter{filter(name, slices.Compact(values)...)}})
}

// each makes the calls at once, in slots of their own, and returns what they found
// in the order of the queries. A memo makes equal calls one.
func each[T any](ctx context.Context, m *memo[string, []T], queries []query, call func(context.Context, query) ([]T, error)) ([]T, error) {
	found := make([][]T, len(queries))
	errs := make([]error, len(queries))
	var wg sync.WaitGroup
	for i, q := range queries {
		wg.Go(func() {
			found[i], errs[i] = m.get(ctx, q.key(), func(ctx context.Context) ([]T, error) { return call(ctx, q) })
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

// findSubnets returns the class's subnets, each once, sorted by zone and ID.
func (p *Provider) findSubnets(ctx context.Context, class *aws.EC2NodeClass) ([]ec2types.Subnet, error) {
	found, err := each(ctx, p.subnets, subnetQueries(class.Spec.SubnetSelectorTerms), func(ctx context.Context, q query) ([]ec2types.Subnet, error) {
		var out []ec2types.Subnet
		pages := ec2.NewDescribeSubnetsPaginator(p.ec2, &ec2.DescribeSubnetsInput{Filters: q.Filters, MaxResults: new(int32(500))})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, failed("find subnets", err)
			}
			out = append(out, page.Subnets...)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return distinct(found, func(s ec2types.Subnet) string { return deref(s.AvailabilityZone) + "/" + deref(s.SubnetId) }), nil
}

// findGroups returns the class's security groups, each once, sorted by ID.
func (p *Provider) findGroups(ctx context.Context, class *aws.EC2NodeClass) ([]ec2types.SecurityGroup, error) {
	found, err := each(ctx, p.groups, groupQueries(class.Spec.SecurityGroupSelectorTerms), func(ctx context.Context, q query) ([]ec2types.SecurityGroup, error) {
		var out []ec2types.SecurityGroup
		pages := ec2.NewDescribeSecurityGroupsPaginator(p.ec2, &ec2.DescribeSecurityGroupsInput{Filters: q.Filters, MaxResults: new(int32(500))})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, failed("find security groups", err)
			}
			out = append(out, page.SecurityGroups...)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return distinct(found, func(g ec2types.SecurityGroup) string { return deref(g.GroupId) }), nil
}

// findReservations returns the class's active capacity reservations, sorted by ID. A
// fresh answer also says how much each has left.
func (p *Provider) findReservations(ctx context.Context, class *aws.EC2NodeClass) ([]ec2types.CapacityReservation, error) {
	found, err := each(ctx, p.reservations, reservationQueries(class.Spec.CapacityReservationSelectorTerms), func(ctx context.Context, q query) ([]ec2types.CapacityReservation, error) {
		out, err := p.listReservations(ctx, q)
		if err != nil {
			return nil, err
		}
		p.reserved.observe(out)
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return distinct(found, func(r ec2types.CapacityReservation) string { return deref(r.CapacityReservationId) }), nil
}

// listReservations makes the call. EC2 refuses all for the sake of one ID that it
// doesn't know: then each is asked for by itself, and those unknown are left out.
func (p *Provider) listReservations(ctx context.Context, q query) ([]ec2types.CapacityReservation, error) {
	in := &ec2.DescribeCapacityReservationsInput{Filters: q.Filters, CapacityReservationIds: q.Owners}
	if len(q.Owners) == 0 {
		in.MaxResults = new(int32(1000))
	}
	var out []ec2types.CapacityReservation
	pages := ec2.NewDescribeCapacityReservationsPaginator(p.ec2, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if c := code(err); (c == codeNoReservation || c == codeBadReservation) && len(q.Owners) > 0 {
			if len(q.Owners) == 1 {
				return nil, nil
			}
			var known []ec2types.CapacityReservation
			for _, id := range q.Owners {
				one, err := p.listReservations(ctx, query{Filters: q.Filters, Owners: []string{id}})
				if err != nil {
					return nil, err
				}
				known = append(known, one...)
			}
			return known, nil
		}
		if err != nil {
			return nil, failed("find capacity reservations", err)
		}
		out = append(out, page.CapacityReservations...)
	}
	return out, nil
}

// findPlacementGroup returns the class's placement group, or nil if it isn't there.
func (p *Provider) findPlacementGroup(ctx context.Context, s *aws.PlacementGroupSelector) (*ec2types.PlacementGroup, error) {
	name, value := "group-name", s.Name
	if s.ID != "" {
		name, value = "group-id", s.ID
	}
	q := query{Filters: []ec2types.Filter{filter("state", "available"), filter(name, value)}}
	found, err := p.placements.get(ctx, q.key(), func(ctx context.Context) ([]ec2types.PlacementGroup, error) {
		out, err := p.ec2.DescribePlacementGroups(ctx, &ec2.DescribePlacementGroupsInput{Filters: q.Filters})
		if err != nil {
			return nil, failed("find placement group "+value, err)
		}
		return out.PlacementGroups, nil
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// distinct sorts by key and keeps one of each.
func distinct[T any](list []T, key func(T) string) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return slices.CompactFunc(list, func(a, b T) bool { return key(a) == key(b) })
}

func subnetStatus(found []ec2types.Subnet) []aws.Subnet {
	var out []aws.Subnet
	for _, s := range found {
		out = append(out, aws.Subnet{ID: deref(s.SubnetId), Zone: deref(s.AvailabilityZone), ZoneID: deref(s.AvailabilityZoneId)})
	}
	return out
}

func groupStatus(found []ec2types.SecurityGroup) []aws.SecurityGroup {
	var out []aws.SecurityGroup
	for _, g := range found {
		out = append(out, aws.SecurityGroup{ID: deref(g.GroupId), Name: deref(g.GroupName)})
	}
	return out
}

// describeTerms puts what was looked for into a message.
func describeTerms(queries []query) string {
	var out []string
	for _, q := range queries {
		var parts []string
		for _, f := range q.Filters {
			parts = append(parts, fmt.Sprintf("%s=%s", deref(f.Name), strings.Join(f.Values, ",")))
		}
		out = append(out, strings.Join(parts, " "))
	}
	return strings.Join(out, "; ")
}
