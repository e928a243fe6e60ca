package ec2

import (
	"slices"
	"strings"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// machine is what EC2 says of an instance type, reduced to what a node's labels
// and capacity follow from. A field that EC2 leaves out is zero.
type machine struct {
	name         string
	arch         string // Kubernetes' name
	vcpus        int64
	memoryMiB    int64
	hypervisor   string // empty on bare metal
	bareMetal    bool
	manufacturer string
	clockMHz     int64

	spot, onDemand bool

	ebsMbps     int64
	networkMbps int64
	encrypted   bool // encryption in transit between instances
	localGB     int64

	// enis and addresses are of the default network card, the only one that the
	// VPC CNI gives pods addresses from.
	enis, addresses int64
	branchENIs      int64
	cards           int64
	efas            int64

	gpu, accelerator device
	neuronCores      int64

	nestedVirtualization, enclaves, trackingConfigurable bool
}

// device is one kind of accelerator; count is 0 if the type has none.
type device struct {
	name, manufacturer string
	count, memoryMiB   int64
}

// machineOf reduces EC2's answer. It returns false for a type that can't be a
// node: without an architecture that Kubernetes runs on, CPU, memory or network.
func machineOf(t ec2types.InstanceTypeInfo) (machine, bool) {
	if t.ProcessorInfo == nil || t.VCpuInfo == nil || t.MemoryInfo == nil || t.NetworkInfo == nil {
		return machine{}, false
	}
	arch := ""
	for _, a := range t.ProcessorInfo.SupportedArchitectures {
		if k := kubeArch(string(a)); k != "" {
			arch = k
			break
		}
	}
	m := machine{
		name:         string(t.InstanceType),
		arch:         arch,
		vcpus:        int64(deref(t.VCpuInfo.DefaultVCpus)),
		memoryMiB:    deref(t.MemoryInfo.SizeInMiB),
		hypervisor:   string(t.Hypervisor),
		bareMetal:    deref(t.BareMetal),
		manufacturer: slug(deref(t.ProcessorInfo.Manufacturer)),
		// EC2 gives tenths of a gigahertz, which are whole megahertz.
		clockMHz:             int64(deref(t.ProcessorInfo.SustainedClockSpeedInGhz)*1000 + 0.5),
		spot:                 slices.Contains(t.SupportedUsageClasses, ec2types.UsageClassTypeSpot),
		onDemand:             slices.Contains(t.SupportedUsageClasses, ec2types.UsageClassTypeOnDemand),
		encrypted:            deref(t.NetworkInfo.EncryptionInTransitSupported),
		addresses:            int64(deref(t.NetworkInfo.Ipv4AddressesPerInterface)),
		cards:                int64(len(t.NetworkInfo.NetworkCards)),
		enclaves:             t.NitroEnclavesSupport == ec2types.NitroEnclavesSupportSupported,
		nestedVirtualization: slices.Contains(t.ProcessorInfo.SupportedFeatures, ec2types.SupportedAdditionalProcessorFeatureNestedVirtualization),
		trackingConfigurable: t.Hypervisor == ec2types.InstanceTypeHypervisorNitro || deref(t.BareMetal),
	}
	if e := t.EbsInfo; e != nil && e.EbsOptimizedInfo != nil && e.EbsOptimizedSupport == ec2types.EbsOptimizedSupportDefault {
		m.ebsMbps = int64(deref(e.EbsOptimizedInfo.MaximumBandwidthInMbps))
	}
	if s := t.InstanceStorageInfo; s != nil && s.NvmeSupport != ec2types.EphemeralNvmeSupportUnsupported {
		m.localGB = deref(s.TotalSizeInGB)
	}
	m.network(t.NetworkInfo)
	m.devices(t)
	if m.name == "" || m.arch == "" || m.vcpus <= 0 || m.memoryMiB <= 0 || m.enis <= 0 || m.addresses <= 0 {
		return machine{}, false
	}
	return m, true
}

func (m *machine) network(n *ec2types.NetworkInfo) {
	byDefault := deref(n.DefaultNetworkCardIndex)
	for i, card := range n.NetworkCards {
		if index := card.NetworkCardIndex; index != nil && *index == byDefault || index == nil && int32(i) == byDefault {
			m.enis = int64(deref(card.MaximumNetworkInterfaces))
		}
		m.networkMbps += int64(deref(card.BaselineBandwidthInGbps)*1000 + 0.5)
	}
	if len(n.NetworkCards) == 0 {
		m.enis = int64(deref(n.MaximumNetworkInterfaces))
	}
	if n.EfaInfo != nil {
		m.efas = int64(deref(n.EfaInfo.MaximumEfaInterfaces))
	}
}

func (m *machine) devices(t ec2types.InstanceTypeInfo) {
	if t.GpuInfo != nil && len(t.GpuInfo.Gpus) > 0 {
		g := t.GpuInfo.Gpus[0]
		m.gpu = device{name: slug(deref(g.Name)), manufacturer: slug(deref(g.Manufacturer))}
		if g.MemoryInfo != nil {
			m.gpu.memoryMiB = int64(deref(g.MemoryInfo.SizeInMiB))
		}
		for _, g := range t.GpuInfo.Gpus {
			m.gpu.count += int64(deref(g.Count))
		}
	}
	switch {
	case t.NeuronInfo != nil && len(t.NeuronInfo.NeuronDevices) > 0:
		m.accelerator = device{name: slug(deref(t.NeuronInfo.NeuronDevices[0].Name)), manufacturer: "aws"}
		for _, n := range t.NeuronInfo.NeuronDevices {
			count := int64(deref(n.Count))
			m.accelerator.count += count
			if n.CoreInfo != nil {
				m.neuronCores += count * int64(deref(n.CoreInfo.Count))
			}
		}
	case t.InferenceAcceleratorInfo != nil && len(t.InferenceAcceleratorInfo.Accelerators) > 0:
		a := t.InferenceAcceleratorInfo.Accelerators[0]
		m.accelerator = device{name: slug(deref(a.Name)), manufacturer: slug(deref(a.Manufacturer))}
		for _, a := range t.InferenceAcceleratorInfo.Accelerators {
			m.accelerator.count += int64(deref(a.Count))
		}
	}
}

// complete adds what no API of EC2's gives from the catalogue.
func (m *machine) complete(c *catalogue.Catalogue) {
	t, ok := c.Type(m.name)
	if !ok {
		return
	}
	m.branchENIs = int64(t.BranchENIs)
	if m.networkMbps == 0 {
		m.networkMbps = int64(t.NetworkMbps)
	}
	if m.clockMHz == 0 {
		m.clockMHz = int64(t.ClockMHz)
	}
}

// kubeArch is Kubernetes' name of EC2's architecture, or "" if it has none.
func kubeArch(a string) string {
	switch a {
	case "x86_64":
		return karpenter.ArchitectureAmd64
	case "arm64":
		return karpenter.ArchitectureArm64
	}
	return ""
}

// slug makes a device's name fit for a label: "A10G" is a10g, "Radeon Pro V520"
// radeon-pro-v520.
func slug(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "-")) }

// deref is the value, or zero if EC2 left it out.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
