package ec2sim

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) describeInstanceTypes(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	names := c.p.strs("InstanceType")
	if len(names) > 100 {
		return invalidParameter("The number of instance types (%d) exceeds the maximum of 100.", len(names))
	}
	if len(names) > 0 && c.p.has("MaxResults") {
		return fail("InvalidParameterCombination", "The parameter maxResults cannot be used with the parameter instanceTypes")
	}
	var unknown []string
	for _, name := range names {
		if !s.sold(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return fail("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
	}
	filters := parseFilters(c.p)
	var found []Type
	for _, t := range s.cat.Types() {
		if !s.sold(t.Name) || len(names) > 0 && !slices.Contains(names, t.Name) {
			continue
		}
		ok, err := passes(filters, nil, s.typeLookup(t))
		if err != nil {
			return err
		}
		if ok {
			found = append(found, t)
		}
	}
	shown, next, err := page(c.p, found, func(t Type) string { return t.Name }, 5, 100)
	if err != nil {
		return err
	}
	if next == "" && len(shown) > 100 {
		// Unlike most lists this one is paged even if the caller doesn't ask.
		if shown, next, err = cut(found, func(t Type) string { return t.Name }, c.p.str("NextToken"), 100); err != nil {
			return err
		}
	}
	c.x.in("instanceTypeSet", func() {
		each(&c.x, "item", shown, func(t Type) { c.x.b.WriteString(s.typeText(t)) })
	})
	c.x.opt("nextToken", next)
	return nil
}

// typeText is a type as DescribeInstanceTypes writes it. It never changes, and
// clients ask for all of them, so it is written once.
func (s *Server) typeText(t Type) string {
	if text, ok := s.typeTexts.Load(t.Name); ok {
		return text.(string)
	}
	var x xmlWriter
	s.writeType(&x, t)
	s.typeTexts.Store(t.Name, x.b.String())
	return x.b.String()
}

// sold says whether the region sells the type in any zone.
func (s *Server) sold(typeName string) bool { return len(s.cat.SoldIn(typeName, s.cfg.Region)) > 0 }

// soldIn says whether a zone sells the type.
func (s *Server) soldIn(typeName string, z zone) bool {
	return slices.Contains(s.cat.SoldIn(typeName, s.cfg.Region), z.id)
}

func (s *Server) usageClasses(typeName string) []string {
	if p, ok := s.cat.Price(typeName, s.cfg.Region); ok && p.Spot > 0 {
		return []string{"on-demand", "spot"}
	}
	return []string{"on-demand"}
}

func (s *Server) typeLookup(t Type) lookup {
	one := func(v string) ([]string, bool) { return []string{v}, true }
	return func(name string) ([]string, bool) {
		switch name {
		case "instance-type":
			return one(t.Name)
		case "bare-metal":
			return one(strconv.FormatBool(t.BareMetal))
		case "burstable-performance-supported":
			return one(strconv.FormatBool(t.Burstable))
		case "current-generation":
			return one(strconv.FormatBool(t.CurrentGeneration))
		case "hypervisor":
			return one(t.Hypervisor)
		case "instance-storage-supported":
			return one(strconv.FormatBool(t.NVMeDisks > 0))
		case "memory-info.size-in-mib":
			return one(strconv.FormatInt(t.MemoryMiB, 10))
		case "network-info.efa-supported":
			return one(strconv.FormatBool(efa(t)))
		case "processor-info.supported-architecture":
			return one(t.Arch)
		case "supported-root-device-type":
			return one("ebs")
		case "supported-usage-class":
			return s.usageClasses(t.Name), true
		case "supported-virtualization-type":
			return one("hvm")
		case "vcpu-info.default-vcpus":
			return one(strconv.Itoa(t.VCPU))
		}
		return nil, false
	}
}

// efa approximates which types have an Elastic Fabric Adapter: by the EC2 user
// guide those of 100 Gbit/s and more do. A few of 50 Gbit/s have one as well,
// which the catalogue cannot tell.
func efa(t Type) bool { return t.Hypervisor != "xen" && t.NetworkMbps >= 100_000 }

// threadsPerCore is 1 where a vCPU is a whole core: Graviton, and AMD from its
// seventh generation on.
func threadsPerCore(t Type) int {
	family, _, _ := strings.Cut(t.Name, ".")
	generation := strings.TrimLeft(family, "abcdefghijklmnopqrstuvwxyz")
	amd7 := t.Manufacturer == "AMD" && generation != "" && generation[0] >= '7'
	if t.Arch == "arm64" || amd7 || t.VCPU < 2 || strings.HasPrefix(family, "t2") {
		return 1
	}
	return 2
}

func (s *Server) writeType(x *xmlWriter, t Type) {
	x.str("instanceType", t.Name)
	x.bool("currentGeneration", t.CurrentGeneration)
	x.bool("freeTierEligible", t.Name == "t2.micro" || t.Name == "t3.micro")
	x.items("supportedUsageClasses", s.usageClasses(t.Name)...)
	x.items("supportedRootDeviceTypes", "ebs")
	x.items("supportedVirtualizationTypes", "hvm")
	x.bool("bareMetal", t.BareMetal)
	x.opt("hypervisor", t.Hypervisor)
	x.in("processorInfo", func() {
		x.items("supportedArchitectures", t.Arch)
		if t.ClockMHz > 0 {
			x.float("sustainedClockSpeedInGhz", float64(t.ClockMHz)/1000)
		}
		x.str("manufacturer", t.Manufacturer)
	})
	x.in("vCpuInfo", func() {
		threads := threadsPerCore(t)
		x.int("defaultVCpus", int64(t.VCPU))
		x.int("defaultCores", int64(t.VCPU/threads))
		x.int("defaultThreadsPerCore", int64(threads))
	})
	x.in("memoryInfo", func() { x.int("sizeInMiB", t.MemoryMiB) })
	x.bool("instanceStorageSupported", t.NVMeDisks > 0)
	if t.NVMeDisks > 0 {
		x.in("instanceStorageInfo", func() {
			x.int("totalSizeInGB", int64(t.NVMeDisks)*t.NVMeGB)
			x.in("disks", func() {
				x.in("item", func() {
					x.int("sizeInGB", t.NVMeGB)
					x.int("count", int64(t.NVMeDisks))
					x.str("type", "ssd")
				})
			})
			x.str("nvmeSupport", "required")
			x.str("encryptionSupport", "required")
		})
	}
	writeEBS(x, t)
	writeNetwork(x, t)
	writeDevices(x, t)
	x.in("placementGroupInfo", func() {
		strategies := []string{"partition", "spread"}
		if t.PlacementGroups {
			strategies = append([]string{"cluster"}, strategies...)
		}
		x.items("supportedStrategies", strategies...)
	})
	x.bool("hibernationSupported", false)
	x.bool("burstablePerformanceSupported", t.Burstable)
	x.bool("dedicatedHostsSupported", !t.Burstable)
	x.bool("autoRecoverySupported", !t.BareMetal)
	x.str("nitroEnclavesSupport", enclaves(t))
	x.in("supportedBootModes", func() {
		if t.Arch != "arm64" {
			x.str("item", "legacy-bios")
		}
		x.str("item", "uefi")
	})
}

// enclaves says whether the type can give part of itself to an enclave. AWS names the
// exceptions; of vCPUs it wants four, or two that are cores.
// https://docs.aws.amazon.com/enclaves/latest/user/nitro-enclave.html#nitro-enclave-reqs
func enclaves(t Type) string {
	if t.Hypervisor == "nitro" && !t.Burstable && (t.VCPU >= 4 || t.VCPU >= 2 && t.Arch == "arm64") {
		return "supported"
	}
	return "unsupported"
}

func writeEBS(x *xmlWriter, t Type) {
	x.in("ebsInfo", func() {
		nvme := "required"
		if t.Hypervisor == "xen" {
			nvme = "unsupported"
		}
		if t.EBSMbps > 0 {
			x.str("ebsOptimizedSupport", "default")
			x.in("ebsOptimizedInfo", func() {
				x.int("baselineBandwidthInMbps", int64(t.EBSMbps))
				x.float("baselineThroughputInMBps", float64(t.EBSMbps)/8)
				x.int("baselineIops", int64(t.EBSIOPS))
				x.int("maximumBandwidthInMbps", int64(max(t.EBSMaxMbps, t.EBSMbps)))
				x.float("maximumThroughputInMBps", float64(max(t.EBSMaxMbps, t.EBSMbps))/8)
				x.int("maximumIops", int64(max(t.EBSMaxIOPS, t.EBSIOPS)))
			})
		} else {
			x.str("ebsOptimizedSupport", "unsupported")
		}
		x.str("encryptionSupport", "supported")
		x.str("nvmeSupport", nvme)
	})
}

func writeNetwork(x *xmlWriter, t Type) {
	nitro := t.Hypervisor != "xen"
	x.in("networkInfo", func() {
		x.str("networkPerformance", t.NetworkPerformance)
		x.int("maximumNetworkInterfaces", int64(t.ENIs))
		x.int("maximumNetworkCards", int64(len(t.Cards)))
		x.int("defaultNetworkCardIndex", int64(t.DefaultCard))
		x.in("networkCards", func() {
			for i, card := range t.Cards {
				x.in("item", func() {
					x.int("networkCardIndex", int64(i))
					x.str("networkPerformance", card.Performance)
					x.int("maximumNetworkInterfaces", int64(card.ENIs))
					if t.NetworkMbps > 0 {
						gbps := float64(t.NetworkMbps) / 1000 / float64(len(t.Cards))
						x.float("baselineBandwidthInGbps", round3(gbps))
						x.float("peakBandwidthInGbps", round3(max(gbps, peakGbps(t.NetworkPerformance)/float64(len(t.Cards)))))
					}
				})
			}
		})
		x.int("ipv4AddressesPerInterface", int64(t.IPv4PerENI))
		x.int("ipv6AddressesPerInterface", int64(t.IPv4PerENI))
		x.bool("ipv6Supported", nitro)
		if nitro {
			x.str("enaSupport", "required")
		} else {
			x.str("enaSupport", "supported")
		}
		x.bool("efaSupported", efa(t))
		if efa(t) {
			x.in("efaInfo", func() { x.int("maximumEfaInterfaces", int64(len(t.Cards))) })
		}
		x.bool("encryptionInTransitSupported", nitro && t.NetworkMbps > 0 && t.CurrentGeneration)
	})
}

// peakGbps reads the number out of "Up to 12.5 Gigabit" or "4x 100 Gigabit", 0
// where there is none.
func peakGbps(performance string) float64 {
	text := strings.TrimSuffix(strings.TrimPrefix(performance, "Up to "), " Gigabit")
	times := 1.0
	if n, rest, ok := strings.Cut(text, "x "); ok {
		f, err := strconv.ParseFloat(n, 64)
		if err != nil {
			return 0
		}
		times, text = f, rest
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return times * f
}

func round3(f float64) float64 { return math.Round(f*1000) / 1000 }

func writeDevices(x *xmlWriter, t Type) {
	if g := t.GPU; g.Count > 0 {
		x.in("gpuInfo", func() {
			x.in("gpus", func() {
				x.in("item", func() {
					x.str("name", g.Name)
					x.str("manufacturer", g.Manufacturer)
					x.int("count", int64(g.Count))
					x.in("memoryInfo", func() { x.int("sizeInMiB", g.MemoryMiB) })
				})
			})
			x.int("totalGpuMemoryInMiB", g.MemoryMiB*int64(g.Count))
		})
	}
	a := t.Accelerator
	if a.Count == 0 {
		return
	}
	if strings.HasPrefix(a.Name, "Inferentia") {
		x.in("inferenceAcceleratorInfo", func() {
			x.in("accelerators", func() {
				x.in("item", func() {
					x.int("count", int64(a.Count))
					x.str("name", a.Name)
					x.str("manufacturer", a.Manufacturer)
					x.in("memoryInfo", func() { x.int("sizeInMiB", a.MemoryMiB) })
				})
			})
			x.int("totalInferenceMemoryInMiB", a.MemoryMiB*int64(a.Count))
		})
	}
	x.in("neuronInfo", func() {
		x.in("neuronDevices", func() {
			x.in("item", func() {
				x.int("count", int64(a.Count))
				x.str("name", a.Name)
				x.in("coreInfo", func() { x.int("count", neuronCores(a.Name)); x.int("version", neuronVersion(a.Name)) })
				x.in("memoryInfo", func() { x.int("sizeInMiB", a.MemoryMiB) })
			})
		})
		x.int("totalNeuronDeviceMemoryInMiB", a.MemoryMiB*int64(a.Count))
	})
}

// neuronCores is how many NeuronCores a chip has, by AWS's Neuron documentation.
func neuronCores(chip string) int64 {
	switch chip {
	case "Inferentia":
		return 4
	case "Trainium2":
		return 8
	}
	return 2
}

func neuronVersion(chip string) int64 {
	switch chip {
	case "Inferentia":
		return 1
	case "Trainium2":
		return 3
	}
	return 2
}

func (s *Server) describeInstanceTypeOfferings(c *call) error {
	if err := c.dryRun(); err != nil {
		return err
	}
	by := c.p.str("LocationType")
	if by == "" {
		by = "region"
	}
	if !slices.Contains([]string{"region", "availability-zone", "availability-zone-id"}, by) {
		return invalidParameter("Value ( %s ) for parameter locationType is invalid.", by)
	}
	type offering struct{ typeName, location string }
	filters := parseFilters(c.p)
	var found []offering
	for _, t := range s.cat.Types() {
		if !s.sold(t.Name) {
			continue
		}
		var locations []string
		if by == "region" {
			locations = []string{s.cfg.Region}
		}
		for _, z := range s.net.zones {
			switch {
			case by == "region" || !s.soldIn(t.Name, z):
			case by == "availability-zone":
				locations = append(locations, z.name)
			default:
				locations = append(locations, z.id)
			}
		}
		slices.Sort(locations)
		for _, location := range locations {
			ok, err := passes(filters, nil, func(name string) ([]string, bool) {
				switch name {
				case "instance-type":
					return []string{t.Name}, true
				case "location":
					return []string{location}, true
				}
				return nil, false
			})
			if err != nil {
				return err
			}
			if ok {
				found = append(found, offering{t.Name, location})
			}
		}
	}
	shown, next, err := page(c.p, found, func(o offering) string { return o.typeName + " " + o.location }, 5, 1000)
	if err != nil {
		return err
	}
	c.x.in("instanceTypeOfferingSet", func() {
		each(&c.x, "item", shown, func(o offering) {
			c.x.str("instanceType", o.typeName)
			c.x.str("location", o.location)
			c.x.str("locationType", by)
		})
	})
	c.x.opt("nextToken", next)
	return nil
}
