package kubelet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const mebibyte = 1 << 20

const (
	// pageOverhead: Linux keeps 64 bytes for each page of 4 KiB.
	pageOverhead = 64
	// fixedOverhead, in MiB, stands for the kernel's image and what firmware
	// keeps. With the pages it makes nodes report 5 % less than the type at 2 GiB
	// and 1.6 % less at 256 GiB; nodes were measured at 1.7 to 5.3 % less in
	// https://github.com/aws/karpenter-provider-aws/issues/6611.
	fixedOverhead = 72
	// arm64Overhead, in MiB, is the contiguous memory area that arm64 kernels
	// set aside.
	arm64Overhead = 64
)

// Defaults of nodeadm and Bottlerocket, which both follow
// https://github.com/awslabs/amazon-eks-ami: a fixed share of memory per pod, a
// falling share of each CPU, hard eviction below these.
const (
	reservedMiB       = 255
	reservedMiBPerPod = 11
	reservedEphemeral = "1Gi"
	evictionMemory    = "100Mi"
	evictionNodeFS    = "10%"
)

// Capacity is what the machine's operating system finds.
func Capacity(m Machine, s Settings) corev1.ResourceList {
	memory := m.MemoryMiB - m.MemoryMiB*pageOverhead/4096 - fixedOverhead
	if m.Arch == "arm64" {
		memory -= arm64Overhead
	}
	pods := s.MaxPods
	if pods == 0 {
		pods = m.ENIMaxPods()
	}
	if s.PodsPerCore > 0 {
		pods = min(pods, s.PodsPerCore*int64(m.VCPU))
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.VCPU), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(max(memory, 0)*mebibyte, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.RootGiB*1024*mebibyte, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(pods, resource.DecimalSI),
		"hugepages-1Gi":                 *resource.NewQuantity(0, resource.DecimalSI),
		"hugepages-2Mi":                 *resource.NewQuantity(0, resource.DecimalSI),
	}
	for name, n := range m.Devices {
		list[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

// Allocatable is what the kubelet leaves for pods: the capacity less what is
// reserved for the kubelet and the system, and less what must stay free.
func Allocatable(capacity corev1.ResourceList, m Machine, s Settings) (corev1.ResourceList, error) {
	reserved := map[string]string{
		// The reservation follows the machine's own number of pods, whatever
		// maxPods says.
		"memory":            fmt.Sprintf("%dMi", reservedMiB+reservedMiBPerPod*m.ENIMaxPods()),
		"cpu":               fmt.Sprintf("%dm", reservedMilliCPU(m.VCPU)),
		"ephemeral-storage": reservedEphemeral,
	}
	for name, value := range s.KubeReserved {
		reserved[name] = value
	}
	eviction := map[string]string{"memory.available": evictionMemory, "nodefs.available": evictionNodeFS}
	for name, value := range s.EvictionHard {
		eviction[name] = value
	}

	out := capacity.DeepCopy()
	take := func(name corev1.ResourceName, q resource.Quantity) {
		left, ok := out[name]
		if !ok {
			return
		}
		left.Sub(q)
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, left.Format)
		}
		out[name] = left
	}
	for _, list := range []map[string]string{reserved, s.SystemReserved} {
		for name, value := range list {
			q, err := resource.ParseQuantity(value)
			if err != nil {
				return nil, fmt.Errorf("reserved %s %q: %w", name, value, err)
			}
			take(corev1.ResourceName(name), q)
		}
	}
	for signal, name := range map[string]corev1.ResourceName{
		"memory.available": corev1.ResourceMemory,
		"nodefs.available": corev1.ResourceEphemeralStorage,
	} {
		q, err := threshold(eviction[signal], capacity[name])
		if err != nil {
			return nil, fmt.Errorf("eviction threshold of %s: %w", signal, err)
		}
		take(name, q)
	}
	return out, nil
}

// reservedMilliCPU is 6 % of the first CPU, 1 % of the second, 0.5 % of the next
// two and 0.25 % of every further one.
func reservedMilliCPU(cpus int) int64 {
	tenths := int64(0) // of a thousandth, as 0.25 % of a CPU is 2.5 of them
	for i := range cpus {
		switch {
		case i == 0:
			tenths += 600
		case i == 1:
			tenths += 100
		case i < 4:
			tenths += 50
		default:
			tenths += 25
		}
	}
	return tenths / 10
}
