package ec2

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// nodeLabels are the well-known labels of a node of the type, but for its zone and
// capacity type, which come from the offering.
func nodeLabels(m *machine, f family, region string) map[string]string {
	l := map[string]string{
		corev1.LabelInstanceTypeStable:                m.name,
		corev1.LabelArchStable:                        m.arch,
		corev1.LabelOSStable:                          string(corev1.Linux),
		corev1.LabelTopologyRegion:                    region,
		aws.LabelInstanceCPU:                          strconv.FormatInt(m.vcpus, 10),
		aws.LabelInstanceMemory:                       strconv.FormatInt(m.memoryMiB, 10),
		aws.LabelInstanceEncryptionInTransitSupported: strconv.FormatBool(m.encrypted),
		aws.LabelInstanceTenancy:                      "default",
	}
	if f.windows() {
		l[corev1.LabelOSStable] = string(corev1.Windows)
		l[karpenter.LabelWindowsBuild] = f.windowsBuild()
	}
	text := func(key, value string) {
		if value != "" {
			l[key] = value
		}
	}
	number := func(key string, n int64) {
		if n > 0 {
			l[key] = strconv.FormatInt(n, 10)
		}
	}
	name := splitTypeName(m.name)
	text(aws.LabelInstanceCategory, name.category)
	text(aws.LabelInstanceFamily, name.family)
	text(aws.LabelInstanceGeneration, name.generation)
	text(aws.LabelInstanceSize, name.size)
	l[aws.LabelInstanceCapabilityFlex] = strconv.FormatBool(strings.HasSuffix(name.family, "-flex"))
	text(aws.LabelInstanceHypervisor, m.hypervisor)
	text(aws.LabelInstanceCPUManufacturer, m.manufacturer)
	number(aws.LabelInstanceCPUSustainedClockSpeedMHz, m.clockMHz)
	number(aws.LabelInstanceEBSBandwidth, m.ebsMbps)
	number(aws.LabelInstanceNetworkBandwidth, m.networkMbps)
	number(aws.LabelInstanceLocalNVME, m.localGB)
	if m.gpu.count > 0 {
		text(aws.LabelInstanceGPUName, m.gpu.name)
		text(aws.LabelInstanceGPUManufacturer, m.gpu.manufacturer)
		number(aws.LabelInstanceGPUCount, m.gpu.count)
		number(aws.LabelInstanceGPUMemory, m.gpu.memoryMiB)
	}
	if m.accelerator.count > 0 {
		text(aws.LabelInstanceAcceleratorName, m.accelerator.name)
		text(aws.LabelInstanceAcceleratorManufacturer, m.accelerator.manufacturer)
		number(aws.LabelInstanceAcceleratorCount, m.accelerator.count)
	}
	return l
}

// typeName is an instance type's name taken apart. What isn't there is empty.
type typeName struct{ category, family, generation, size string }

// splitTypeName reads names such as these:
//
//	c7i-flex.8xlarge   category c,  generation 7, size 8xlarge
//	im4gn.large        category im, generation 4
//	u-6tb1.metal       category u,  generation 1: 6tb is the memory
//	u7i-12tb.224xlarge category u,  generation 7
func splitTypeName(name string) typeName {
	var t typeName
	t.family, t.size, _ = strings.Cut(name, ".")
	rest := strings.TrimLeft(t.family, "abcdefghijklmnopqrstuvwxyz")
	t.category = strings.TrimSuffix(t.family, rest)
	if memory, ok := strings.CutPrefix(rest, "-"); ok {
		if _, after, found := strings.Cut(memory, "tb"); found {
			rest = after
		}
	}
	t.generation = rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	if t.generation == "" {
		t.category = ""
	}
	return t
}
