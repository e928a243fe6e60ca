package ec2sim

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// findInstances finds instances by ID, or says with EC2's codes which it can't.
func (s *Server) findInstances(ids []string) ([]*instance, error) {
	var found []*instance
	var missing []string
	for _, id := range ids {
		if !instanceID.MatchString(id) {
			return nil, fail("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		i := s.instances[id]
		if i == nil || s.clock.Now().Before(i.visible) {
			missing = append(missing, id)
			continue
		}
		found = append(found, i)
	}
	switch len(missing) {
	case 0:
		return found, nil
	case 1:
		return nil, fail("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", missing[0])
	}
	return nil, fail("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(missing, ", "))
}

// visibleInstances returns every instance that Describe calls may show, or those
// of the given IDs, in order of ID.
func (s *Server) visibleInstances(ids []string) ([]*instance, error) {
	if len(ids) > 0 {
		found, err := s.findInstances(ids)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(found, func(a, b *instance) int { return strings.Compare(a.id, b.id) })
		return slices.Compact(found), nil
	}
	var found []*instance
	now := s.clock.Now()
	for _, id := range sortedKeys(s.instances) {
		if i := s.instances[id]; !now.Before(i.visible) {
			found = append(found, i)
		}
	}
	return found, nil
}

func (s *Server) describeInstances(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	ids := c.p.strs("InstanceId")
	if len(ids) > 0 && c.p.has("MaxResults") {
		return fail("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	all, err := s.visibleInstances(ids)
	if err != nil {
		return err
	}
	filters := parseFilters(c.p)
	var found []*instance
	for _, i := range all {
		ok, err := passes(filters, s.tags[i.id], s.instanceLookup(i))
		if err != nil {
			return err
		}
		if ok {
			found = append(found, i)
		}
	}
	shown, next, err := page(c.p, found, func(i *instance) string { return i.id }, 5, 1000)
	if err != nil {
		return err
	}
	// Instances of one reservation stand together if they are on one page.
	var order []string
	byReservation := map[string][]*instance{}
	for _, i := range shown {
		if byReservation[i.reservation] == nil {
			order = append(order, i.reservation)
		}
		byReservation[i.reservation] = append(byReservation[i.reservation], i)
	}
	c.x.in("reservationSet", func() {
		each(&c.x, "item", order, func(r string) {
			c.x.str("reservationId", r)
			c.x.str("ownerId", s.cfg.Account)
			c.x.in("groupSet", func() {})
			c.x.in("instancesSet", func() {
				each(&c.x, "item", byReservation[r], func(i *instance) { s.writeInstance(&c.x, i) })
			})
		})
	})
	c.x.opt("nextToken", next)
	return nil
}

func (s *Server) instanceLookup(i *instance) lookup {
	one := func(v string) ([]string, bool) { return []string{v}, true }
	return func(name string) ([]string, bool) {
		switch name {
		case "instance-id":
			return one(i.id)
		case "instance-type":
			return one(i.typ.Name)
		case "instance-state-name":
			return one(i.state)
		case "instance-state-code":
			return one(stateCode(i.state))
		case "instance-lifecycle":
			if i.capacityType == Spot {
				return one("spot")
			}
			return nil, true
		case "spot-instance-request-id":
			return one(i.spotRequest)
		case "availability-zone", "placement.availability-zone":
			return one(i.subnet.zone.name)
		case "availability-zone-id":
			return one(i.subnet.zone.id)
		case "image-id":
			return one(i.spec.imageID)
		case "architecture":
			return one(i.typ.Arch)
		case "subnet-id", "network-interface.subnet-id":
			return one(i.subnet.id)
		case "vpc-id":
			return one(s.net.vpcID)
		case "instance.group-id", "network-interface.group-id":
			return i.spec.groups, true
		case "private-ip-address":
			return one(i.addr.String())
		case "private-dns-name":
			return one(privateDNS(s.cfg.Region, i.addr))
		case "reservation-id":
			return one(i.reservation)
		case "client-token":
			return one(i.clientToken)
		case "launch-time":
			return one(i.launched.UTC().Format(timeLayout))
		case "iam-instance-profile.arn":
			return one(i.spec.profileARN)
		case "key-name":
			return one(i.spec.keyName)
		case "placement-group-name":
			return one(i.spec.group)
		case "capacity-reservation-id":
			return one(i.capacityID)
		case "tenancy":
			return one("default")
		}
		return nil, false
	}
}

// stateCode is the low byte of EC2's numeric state.
func stateCode(state string) string {
	switch state {
	case StatePending:
		return "0"
	case StateRunning:
		return "16"
	case StateShuttingDown:
		return "32"
	}
	return "48"
}

func writeState(x *xmlWriter, state string) {
	x.str("code", stateCode(state))
	x.str("name", state)
}

func (s *Server) writeInstance(x *xmlWriter, i *instance) {
	x.str("instanceId", i.id)
	x.str("imageId", i.spec.imageID)
	x.in("instanceState", func() { writeState(x, i.state) })
	live := i.state != StateTerminated
	dns := ""
	if live {
		dns = privateDNS(s.cfg.Region, i.addr)
	}
	x.str("privateDnsName", dns)
	x.str("dnsName", "")
	if i.reason != "" {
		why := reasonText(i.reason)
		x.str("reason", why+" ("+i.ended.UTC().Format("2006-01-02 15:04:05")+" GMT)")
		x.in("stateReason", func() { x.str("code", i.reason); x.str("message", i.reason+": "+why) })
	}
	x.opt("keyName", i.spec.keyName)
	x.int("amiLaunchIndex", int64(i.launchIndex))
	x.in("productCodes", func() {})
	x.str("instanceType", i.typ.Name)
	x.time("launchTime", i.launched)
	x.in("placement", func() {
		x.str("availabilityZone", i.subnet.zone.name)
		x.str("availabilityZoneId", i.subnet.zone.id)
		x.str("groupName", i.spec.group)
		x.str("tenancy", "default")
	})
	x.in("monitoring", func() {
		if i.spec.monitoring {
			x.str("state", "enabled")
		} else {
			x.str("state", "disabled")
		}
	})
	if live {
		x.str("subnetId", i.subnet.id)
		x.str("vpcId", s.net.vpcID)
		x.str("privateIpAddress", i.addr.String())
		x.bool("sourceDestCheck", true)
	}
	s.writeGroups(x, i)
	x.str("architecture", i.typ.Arch)
	x.str("rootDeviceType", "ebs")
	x.str("rootDeviceName", "/dev/xvda")
	s.writeVolumes(x, i)
	x.str("virtualizationType", "hvm")
	x.str("clientToken", i.clientToken)
	s.writeTags(x, i.id)
	x.str("hypervisor", "xen")
	s.writeInterfaces(x, i)
	if i.spec.profile != "" {
		x.in("iamInstanceProfile", func() {
			x.str("arn", i.spec.profileARN)
			x.str("id", s.profileID(i.spec.profile))
		})
	}
	if i.capacityType == Spot {
		x.str("instanceLifecycle", "spot")
		x.str("spotInstanceRequestId", i.spotRequest)
	}
	x.bool("ebsOptimized", i.typ.EBSMbps > 0)
	x.bool("enaSupport", true)
	x.in("cpuOptions", func() {
		threads := threadsPerCore(i.typ)
		x.int("coreCount", int64(i.typ.VCPU/threads))
		x.int("threadsPerCore", int64(threads))
	})
	x.opt("capacityReservationId", i.capacityID)
	x.in("capacityReservationSpecification", func() {
		preference := i.spec.capacityPreference
		if preference == "" {
			preference = "open"
		}
		x.str("capacityReservationPreference", preference)
		if i.spec.capacityTarget != "" {
			x.in("capacityReservationTarget", func() { x.str("capacityReservationId", i.spec.capacityTarget) })
		}
	})
	x.in("metadataOptions", func() {
		x.str("state", "applied")
		for _, option := range [][2]string{
			{"HttpTokens", "required"}, {"HttpPutResponseHopLimit", "2"}, {"HttpEndpoint", "enabled"},
			{"HttpProtocolIpv6", "disabled"}, {"InstanceMetadataTags", "disabled"},
		} {
			value := i.spec.metadata.str(option[0])
			if value == "" {
				value = option[1]
			}
			x.str(strings.ToLower(option[0][:1])+option[0][1:], value)
		}
	})
	x.in("enclaveOptions", func() { x.bool("enabled", false) })
	x.str("bootMode", "uefi-preferred")
	x.str("platformDetails", "Linux/UNIX")
	x.str("usageOperation", "RunInstances")
	x.time("usageOperationUpdateTime", i.launched)
}

// reasonText says in words why an instance ended.
func reasonText(code string) string {
	switch code {
	case "Client.UserInitiatedShutdown":
		return "User initiated shutdown"
	case "Server.SpotInstanceTermination":
		return "Spot instance termination"
	}
	return "Internal error on launch or of the hardware"
}

func (s *Server) writeGroups(x *xmlWriter, i *instance) {
	x.in("groupSet", func() {
		each(x, "item", i.spec.groups, func(id string) {
			x.str("groupId", id)
			if g := s.net.group(id); g != nil {
				x.str("groupName", g.name)
			}
		})
	})
}

// writeVolumes lists the volumes: the image's root, or what the request mapped.
func (s *Server) writeVolumes(x *xmlWriter, i *instance) {
	names := []string{"/dev/xvda"}
	if len(i.spec.devices) > 0 {
		names = nil
		for _, d := range i.spec.devices {
			if d.has("Ebs") {
				names = append(names, d.str("DeviceName"))
			}
		}
	}
	x.in("blockDeviceMapping", func() {
		if i.state == StateTerminated {
			return
		}
		for n, name := range names {
			x.in("item", func() {
				x.str("deviceName", name)
				x.in("ebs", func() {
					id := i.volume
					if n > 0 {
						id = i.volume[:len(i.volume)-1] + string("0123456789abcdef"[n%16])
					}
					x.str("volumeId", id)
					x.str("status", "attached")
					x.time("attachTime", i.launched.Add(time.Second))
					x.bool("deleteOnTermination", true)
				})
			})
		}
	})
}

func (s *Server) writeInterfaces(x *xmlWriter, i *instance) {
	x.in("networkInterfaceSet", func() {
		if i.state == StateTerminated {
			return
		}
		x.in("item", func() {
			x.str("networkInterfaceId", i.eni)
			x.str("subnetId", i.subnet.id)
			x.str("vpcId", s.net.vpcID)
			x.str("ownerId", s.cfg.Account)
			x.str("status", "in-use")
			x.str("privateIpAddress", i.addr.String())
			x.str("privateDnsName", privateDNS(s.cfg.Region, i.addr))
			x.bool("sourceDestCheck", true)
			x.str("interfaceType", "interface")
			s.writeGroups(x, i)
			x.in("attachment", func() {
				x.str("attachmentId", "eni-attach-"+strings.TrimPrefix(i.eni, "eni-"))
				x.int("deviceIndex", 0)
				x.int("networkCardIndex", 0)
				x.str("status", "attached")
				x.time("attachTime", i.launched)
				x.bool("deleteOnTermination", true)
			})
			x.in("privateIpAddressesSet", func() {
				x.in("item", func() {
					x.str("privateIpAddress", i.addr.String())
					x.str("privateDnsName", privateDNS(s.cfg.Region, i.addr))
					x.bool("primary", true)
				})
			})
		})
	})
}
