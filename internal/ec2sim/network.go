package ec2sim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// network is the account's one VPC: a private and a public subnet in each zone,
// a security group for nodes and the VPC's default one.
type network struct {
	vpcID   string
	zones   []zone
	subnets []*subnet
	groups  []*securityGroup
}

// zone is an availability zone: its name in this account, and the ID that is the
// same in all accounts.
type zone struct{ name, id string }

type subnet struct {
	id     string
	zone   zone
	cidr   netip.Prefix
	public bool
	// next is the address to hand out next; freed ones are reused first.
	next  netip.Addr
	freed []netip.Addr
	used  int
}

type securityGroup struct {
	id, name, description string
}

// discoveryTag is what the subnets and security groups for nodes carry, so that
// a NodeClass with this selector works in a fresh simulator.
const discoveryTag = "karpenter.sh/discovery"

// newNetwork builds the VPC 10.0.0.0/16. Zone letters do not follow zone IDs, as
// in real accounts: the first two are swapped.
func (s *Server) newNetwork(zoneIDs []string) network {
	ids := slices.Clone(zoneIDs)
	if len(ids) > 1 {
		ids[0], ids[1] = ids[1], ids[0]
	}
	n := network{vpcID: s.id("vpc")}
	for i, id := range ids {
		n.zones = append(n.zones, zone{name: s.cfg.Region + string(rune('a'+i)), id: id})
	}
	for i, z := range n.zones {
		// 8,187 usable addresses for nodes, 1,019 for what faces the internet.
		n.subnets = append(n.subnets,
			s.newSubnet(z, fmt.Sprintf("10.0.%d.0/19", i*32), false),
			s.newSubnet(z, fmt.Sprintf("10.0.%d.0/22", 224+i*4), true))
	}
	n.groups = []*securityGroup{
		{id: s.id("sg"), name: "coppice-nodes", description: "Nodes of the simulated clusters"},
		{id: s.id("sg"), name: "default", description: "default VPC security group"},
	}
	s.tag(n.groups[0].id, map[string]string{"Name": n.groups[0].name, discoveryTag: "true"})
	return n
}

func (s *Server) newSubnet(z zone, cidr string, public bool) *subnet {
	prefix := netip.MustParsePrefix(cidr)
	sub := &subnet{id: s.id("subnet"), zone: z, cidr: prefix, public: public, next: prefix.Addr()}
	// AWS keeps the first four addresses of a subnet and the last.
	for range 4 {
		sub.next = sub.next.Next()
	}
	kind, tags := "private", map[string]string{discoveryTag: "true", "kubernetes.io/role/internal-elb": "1"}
	if public {
		kind, tags = "public", map[string]string{"kubernetes.io/role/elb": "1"}
	}
	tags["Name"] = "coppice-" + kind + "-" + z.name
	s.tag(sub.id, tags)
	return sub
}

// discoverable lists the IDs of what nodes run in.
func (n *network) discoverable() []string {
	var ids []string
	for _, sub := range n.subnets {
		if !sub.public {
			ids = append(ids, sub.id)
		}
	}
	return append(ids, n.groups[0].id)
}

func (n *network) subnet(id string) *subnet {
	for _, sub := range n.subnets {
		if sub.id == id {
			return sub
		}
	}
	return nil
}

// subnetIn returns the subnet that an instance gets when only its zone is given.
func (n *network) subnetIn(zoneName string) *subnet {
	for _, sub := range n.subnets {
		if sub.zone.name == zoneName && !sub.public {
			return sub
		}
	}
	return nil
}

func (n *network) group(id string) *securityGroup {
	for _, g := range n.groups {
		if g.id == id {
			return g
		}
	}
	return nil
}

// zone finds a zone by name or ID.
func (n *network) zone(name string) (zone, bool) {
	for _, z := range n.zones {
		if z.name == name || z.id == name {
			return z, true
		}
	}
	return zone{}, false
}

// size is the number of addresses that instances can have: all but five.
func (sub *subnet) size() int { return 1<<(32-sub.cidr.Bits()) - 5 }

func (sub *subnet) free() int { return sub.size() - sub.used }

// take hands out an address; the caller has checked that one is free.
func (sub *subnet) take() netip.Addr {
	sub.used++
	if n := len(sub.freed); n > 0 {
		addr := sub.freed[0]
		sub.freed = sub.freed[1:]
		return addr
	}
	addr := sub.next
	sub.next = addr.Next()
	return addr
}

func (sub *subnet) release(addr netip.Addr) {
	sub.used--
	sub.freed = append(sub.freed, addr)
}

// privateDNS names a host as a VPC's resolver does; us-east-1 is the exception.
func privateDNS(region string, addr netip.Addr) string {
	suffix := region + ".compute.internal"
	if region == "us-east-1" {
		suffix = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(addr.String(), ".", "-") + "." + suffix
}

// tag sets tags of a resource; a key that it has already gets the new value.
func (s *Server) tag(id string, tags map[string]string) {
	if len(tags) == 0 {
		return
	}
	if s.tags[id] == nil {
		s.tags[id] = map[string]string{}
	}
	for k, v := range tags {
		s.tags[id][k] = v
	}
}

func (s *Server) writeTags(x *xmlWriter, id string) {
	tags := s.tags[id]
	if len(tags) == 0 {
		return
	}
	x.in("tagSet", func() {
		each(x, "item", sortedKeys(tags), func(k string) { x.str("key", k); x.str("value", tags[k]) })
	})
}

func (s *Server) describeAvailabilityZones(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	filters, names, ids := parseFilters(c.p), c.p.strs("ZoneName"), c.p.strs("ZoneId")
	for _, name := range slices.Concat(names, ids) {
		if _, ok := s.net.zone(name); !ok {
			return invalidParameter("Invalid availability zone: [%s]", name)
		}
	}
	var found []zone
	for _, z := range s.net.zones {
		ok, err := passes(filters, nil, func(name string) ([]string, bool) {
			switch name {
			case "zone-name":
				return []string{z.name}, true
			case "zone-id":
				return []string{z.id}, true
			case "state":
				return []string{"available"}, true
			case "region-name", "group-name":
				return []string{s.cfg.Region}, true
			case "zone-type":
				return []string{"availability-zone"}, true
			case "opt-in-status":
				return []string{"opt-in-not-required"}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		named := len(names)+len(ids) == 0 || slices.Contains(names, z.name) || slices.Contains(ids, z.id)
		if ok && named {
			found = append(found, z)
		}
	}
	c.x.in("availabilityZoneInfo", func() {
		each(&c.x, "item", found, func(z zone) {
			c.x.str("zoneName", z.name)
			c.x.str("zoneState", "available")
			c.x.str("zoneId", z.id)
			c.x.str("zoneType", "availability-zone")
			c.x.str("optInStatus", "opt-in-not-required")
			c.x.str("regionName", s.cfg.Region)
			c.x.str("groupName", s.cfg.Region)
			c.x.str("networkBorderGroup", s.cfg.Region)
		})
	})
	return nil
}

func (s *Server) describeSubnets(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	ids := c.p.strs("SubnetId")
	for _, id := range ids {
		if s.net.subnet(id) == nil {
			return fail("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	var found []*subnet
	for _, sub := range s.net.subnets {
		ok, err := passes(parseFilters(c.p), s.tags[sub.id], func(name string) ([]string, bool) {
			switch name {
			case "subnet-id":
				return []string{sub.id}, true
			case "vpc-id":
				return []string{s.net.vpcID}, true
			case "availability-zone", "availabilityZone":
				return []string{sub.zone.name}, true
			case "availability-zone-id", "availabilityZoneId":
				return []string{sub.zone.id}, true
			case "cidr", "cidr-block", "cidrBlock":
				return []string{sub.cidr.String()}, true
			case "state":
				return []string{"available"}, true
			case "owner-id":
				return []string{s.cfg.Account}, true
			case "default-for-az", "defaultForAz":
				return []string{"false"}, true
			case "map-public-ip-on-launch":
				return []string{fmt.Sprint(sub.public)}, true
			case "available-ip-address-count":
				return []string{fmt.Sprint(sub.free())}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, sub.id)) {
			found = append(found, sub)
		}
	}
	slices.SortFunc(found, func(a, b *subnet) int { return cmp.Compare(a.id, b.id) })
	shown, next, err := page(c.p, found, func(sub *subnet) string { return sub.id }, 5, 1000)
	if err != nil {
		return err
	}
	c.x.in("subnetSet", func() {
		each(&c.x, "item", shown, func(sub *subnet) {
			c.x.str("subnetId", sub.id)
			c.x.str("subnetArn", s.arn("ec2", "subnet/"+sub.id))
			c.x.str("state", "available")
			c.x.str("ownerId", s.cfg.Account)
			c.x.str("vpcId", s.net.vpcID)
			c.x.str("cidrBlock", sub.cidr.String())
			c.x.int("availableIpAddressCount", int64(sub.free()))
			c.x.str("availabilityZone", sub.zone.name)
			c.x.str("availabilityZoneId", sub.zone.id)
			c.x.bool("defaultForAz", false)
			c.x.bool("mapPublicIpOnLaunch", sub.public)
			c.x.bool("assignIpv6AddressOnCreation", false)
			s.writeTags(&c.x, sub.id)
		})
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) describeSecurityGroups(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	ids, names := c.p.strs("GroupId"), c.p.strs("GroupName")
	for _, id := range ids {
		if s.net.group(id) == nil {
			return fail("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	var found []*securityGroup
	for _, g := range s.net.groups {
		ok, err := passes(parseFilters(c.p), s.tags[g.id], func(name string) ([]string, bool) {
			switch name {
			case "group-id":
				return []string{g.id}, true
			case "group-name":
				return []string{g.name}, true
			case "description":
				return []string{g.description}, true
			case "vpc-id":
				return []string{s.net.vpcID}, true
			case "owner-id":
				return []string{s.cfg.Account}, true
			}
			return nil, false
		})
		if err != nil {
			return err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, g.id)) && (len(names) == 0 || slices.Contains(names, g.name)) {
			found = append(found, g)
		}
	}
	slices.SortFunc(found, func(a, b *securityGroup) int { return cmp.Compare(a.id, b.id) })
	shown, next, err := page(c.p, found, func(g *securityGroup) string { return g.id }, 5, 1000)
	if err != nil {
		return err
	}
	c.x.in("securityGroupInfo", func() {
		each(&c.x, "item", shown, func(g *securityGroup) {
			c.x.str("groupId", g.id)
			c.x.str("groupName", g.name)
			c.x.str("groupDescription", g.description)
			c.x.str("securityGroupArn", s.arn("ec2", "security-group/"+g.id))
			c.x.str("ownerId", s.cfg.Account)
			c.x.str("vpcId", s.net.vpcID)
			s.writeTags(&c.x, g.id)
		})
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) arn(service, resource string) string {
	return fmt.Sprintf("arn:aws:%s:%s:%s:%s", service, s.cfg.Region, s.cfg.Account, resource)
}
