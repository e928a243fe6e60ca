package ec2

import (
	"math/big"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/schemas/aws"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30

	// gravitonReservedMiB is contiguous memory that the kernel of the EKS images
	// sets aside on arm64 (cma=64M).
	gravitonReservedMiB = 64

	// podsWithoutENILimit is the kubelet's own default of maxPods, for families
	// whose pods don't take addresses from network interfaces.
	podsWithoutENILimit = 110

	// What the EKS images reserve for the kubelet and the container runtime:
	// 255 MiB and 11 MiB a pod (bootstrap.sh and nodeadm of awslabs/amazon-eks-ami),
	// and 1 GiB of disk.
	reservedMemoryMiB       = 255
	reservedMemoryMiBPerPod = 11
	reservedStorage         = gibibyte

	// The kubelet's default thresholds of hard eviction: 100 MiB of memory and
	// 10 % of the disk.
	evictionMemory         = 100 * mebibyte
	evictionStorageDivisor = 10
)

// sizing is what a node class and the controller's settings say about how much of
// a machine pods can have.
type sizing struct {
	family family
	// overheadPPM is the part of the memory, in millionths, that the hypervisor and
	// the kernel keep for themselves.
	overheadPPM int64
	// reservedENIs are kept out of pods' reach.
	reservedENIs int64
	// interfaces are those that the class lists, none if it leaves them to the launch.
	interfaces []*aws.NetworkInterface
	kubelet    kubelet
	// volume is the size in bytes of the EBS volume that holds pods' files.
	volume int64
	// raid0 puts pods' files on the instance's own disks where it has any.
	raid0 bool
}

// capacity is what a node of the type reports.
func (s *sizing) capacity(m *machine) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(m.vcpus, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(s.memory(m), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(s.storage(m), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(s.pods(m), resource.DecimalSI),
	}
	add := func(name corev1.ResourceName, n int64) {
		if n > 0 {
			list[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	switch m.gpu.manufacturer {
	case "nvidia":
		add(aws.ResourceNVIDIAGPU, m.gpu.count)
	case "amd":
		add(aws.ResourceAMDGPU, m.gpu.count)
	case "habana":
		add(aws.ResourceHabanaGaudi, m.gpu.count)
	}
	add(aws.ResourceAWSNeuron, m.accelerator.count)
	add(aws.ResourceAWSNeuronCore, m.neuronCores)
	add(aws.ResourceAWSPodENI, m.branchENIs)
	add(aws.ResourceEFA, s.efas(m))
	if s.family.windows() {
		add(aws.ResourcePrivateIPv4, m.addresses-1)
	}
	return list
}

// memory is the machine's memory in bytes less what the guest never sees. The
// overhead is rounded up to a whole MiB so that a node never has less than promised.
func (s *sizing) memory(m *machine) int64 {
	mib := m.memoryMiB
	if m.arch == "arm64" {
		mib -= gravitonReservedMiB
	}
	return (mib - ceilDiv(mib*s.overheadPPM, 1e6)) * mebibyte
}

func (s *sizing) storage(m *machine) int64 {
	if s.raid0 && m.localGB > 0 {
		return m.localGB * 1e9
	}
	return s.volume
}

// pods is how many pods the kubelet takes.
func (s *sizing) pods(m *machine) int64 {
	n := int64(podsWithoutENILimit)
	switch {
	case s.kubelet.MaxPods != nil:
		n = int64(*s.kubelet.MaxPods)
	case s.family.podsLimitedByENIs():
		n = eniPods(m, s.reservedENIs+s.efaOnly(defaultCard))
	}
	if perCore := int64(deref(s.kubelet.PodsPerCore)); perCore > 0 && s.family.podsPerCore() {
		n = min(n, perCore*m.vcpus)
	}
	return n
}

// eniPods is how many pods can have an address while some interfaces have none to
// give: one of each interface's addresses is its own, and two pods (kube-proxy and the
// CNI) use the node's.
// https://github.com/awslabs/amazon-eks-ami/blob/main/templates/shared/runtime/eni-max-pods.txt
func eniPods(m *machine, without int64) int64 {
	usable := m.enis - without
	if usable <= 0 {
		return 0
	}
	return usable*(m.addresses-1) + 2
}

// efas is how many EFA interfaces a node has: those that the class lists, or all that
// the type can have, which a launch attaches when a pod asks for any.
func (s *sizing) efas(m *machine) int64 {
	if len(s.interfaces) == 0 {
		return m.efas
	}
	return s.efaOnly(anyCard)
}

const (
	// defaultCard is the network card whose interfaces give pods addresses.
	defaultCard = 0
	anyCard     = -1
)

// efaOnly counts the listed interfaces of a card that carry no IP traffic.
func (s *sizing) efaOnly(card int32) int64 {
	var n int64
	for _, i := range s.interfaces {
		if i.InterfaceType == aws.InterfaceTypeEFAOnly && (card == anyCard || i.NetworkCardIndex == card) {
			n++
		}
	}
	return n
}

// allocatable is capacity less the kubelet's reservations and eviction thresholds.
func (s *sizing) allocatable(m *machine, capacity corev1.ResourceList) corev1.ResourceList {
	list := capacity.DeepCopy()
	take := func(name corev1.ResourceName, q resource.Quantity) {
		left := list[name]
		left.Sub(q)
		if left.Sign() < 0 {
			left.Set(0)
		}
		list[name] = left
	}
	for name, q := range s.reserved(m) {
		take(name, q)
	}
	for name, text := range s.kubelet.SystemReserved {
		if q, err := resource.ParseQuantity(text); err == nil {
			if _, has := list[corev1.ResourceName(name)]; has {
				take(corev1.ResourceName(name), q)
			}
		}
	}
	memory, storage := s.eviction(capacity)
	take(corev1.ResourceMemory, memory)
	take(corev1.ResourceEphemeralStorage, storage)
	return list
}

// reserved is what is kept for the kubelet and the container runtime: the class's
// kubeReserved, and the images' defaults for what it doesn't name.
func (s *sizing) reserved(m *machine) corev1.ResourceList {
	pods := s.pods(m)
	if s.family.reservesByENIs() {
		// The images go by a table of types, which knows of no interface set aside.
		pods = eniPods(m, 0)
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(reservedMilliCPU(m.vcpus), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity((reservedMemoryMiBPerPod*pods+reservedMemoryMiB)*mebibyte, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(reservedStorage, resource.BinarySI),
	}
	for name := range list {
		if q, err := resource.ParseQuantity(s.kubelet.KubeReserved[string(name)]); err == nil {
			list[name] = q
		}
	}
	return list
}

// reservedMilliCPU is 6 % of the first core, 1 % of the second, 0.5 % of the next
// two and 0.25 % of the rest, rounded up, as the EKS and Bottlerocket images do.
func reservedMilliCPU(vcpus int64) int64 {
	tier := func(from, to int64) int64 { return max(0, min(vcpus, to)-from) }
	return 60*tier(0, 1) + 10*tier(1, 2) + 5*tier(2, 4) + ceilDiv(5*max(0, vcpus-4), 2)
}

// eviction is what the kubelet keeps free: the higher of the hard and the soft
// threshold, since a node under soft pressure takes no pods either.
func (s *sizing) eviction(capacity corev1.ResourceList) (memory, storage resource.Quantity) {
	disk := capacity[corev1.ResourceEphemeralStorage]
	memory = *resource.NewQuantity(evictionMemory, resource.BinarySI)
	storage = *resource.NewQuantity(ceilDiv(disk.Value(), evictionStorageDivisor), resource.BinarySI)
	signals := []map[string]string{s.kubelet.EvictionHard}
	if s.family.evictsSoftly() {
		signals = append(signals, s.kubelet.EvictionSoft)
	}
	highest := func(signal string, of resource.Quantity, otherwise resource.Quantity) resource.Quantity {
		var found *resource.Quantity
		for _, thresholds := range signals {
			if q, ok := threshold(thresholds[signal], of); ok && (found == nil || q.Cmp(*found) > 0) {
				found = &q
			}
		}
		if found == nil {
			return otherwise
		}
		return *found
	}
	return highest("memory.available", capacity[corev1.ResourceMemory], memory),
		highest("nodefs.available", disk, storage)
}

// threshold reads an eviction threshold, a quantity or a part of the capacity such
// as "7.5%". 100 % switches the threshold off, as it does in the kubelet.
func threshold(text string, of resource.Quantity) (resource.Quantity, bool) {
	if text == "" {
		return resource.Quantity{}, false
	}
	percent, isPercent := strings.CutSuffix(text, "%")
	if !isPercent {
		q, err := resource.ParseQuantity(text)
		return q, err == nil
	}
	part, ok := new(big.Rat).SetString(strings.TrimSpace(percent))
	if !ok || part.Sign() < 0 {
		return resource.Quantity{}, false
	}
	if part.Cmp(big.NewRat(100, 1)) >= 0 {
		return *resource.NewQuantity(0, resource.BinarySI), true
	}
	part.Mul(part, big.NewRat(of.Value(), 100))
	n := new(big.Int).Quo(part.Num(), part.Denom())
	if !part.IsInt() {
		n.Add(n, big.NewInt(1))
	}
	return *resource.NewQuantity(n.Int64(), resource.BinarySI), true
}

// ceilDiv divides two non-negative numbers and rounds up.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
