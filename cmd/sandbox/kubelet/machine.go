package kubelet

import "fmt"

// Machine is a virtual machine as its own operating system and the cloud
// controller manager see it.
type Machine struct {
	// ID is EC2's, as in i-0123456789abcdef0.
	ID     string
	Type   string
	Region string
	Zone   string
	ZoneID string
	// Arch is Kubernetes' name: amd64 or arm64.
	Arch      string
	PrivateIP string
	// PrivateDNS is the node's name, as on AL2023.
	PrivateDNS string

	VCPU int
	// MemoryMiB is what EC2 sells; the node reports less.
	MemoryMiB int64
	// RootGiB is the size of the volume that pods write to.
	RootGiB int64
	// ENIs and IPv4PerENI are those of the default network card.
	ENIs, IPv4PerENI int
	// Devices are extended resources, by name, as device plugins report them.
	Devices map[string]int64

	UserData []byte
}

// ProviderID is how Kubernetes names the machine.
func (m Machine) ProviderID() string { return fmt.Sprintf("aws:///%s/%s", m.Zone, m.ID) }

// ENIMaxPods is how many pods fit with one address each: one address of every
// interface is its own, and two pods (aws-node and kube-proxy) use the host's
// network. https://github.com/awslabs/amazon-eks-ami computes it so.
func (m Machine) ENIMaxPods() int64 { return int64(m.ENIs)*int64(m.IPv4PerENI-1) + 2 }
