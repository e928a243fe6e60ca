package stack

import (
	"github.com/coppice-dev/coppice/cmd/sandbox/kubelet"
	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// rootGiB is the size of the root volume of the EKS images.
const rootGiB = 20

// machine is an instance as its operating system sees it.
func machine(region string, i ec2sim.Instance, typ ec2sim.Type) kubelet.Machine {
	m := kubelet.Machine{
		ID: i.ID, Type: i.Type, Region: region, Zone: i.Zone, ZoneID: i.ZoneID,
		Arch: "amd64", PrivateIP: i.PrivateIP, PrivateDNS: i.PrivateDNS,
		VCPU: typ.VCPU, MemoryMiB: typ.MemoryMiB, RootGiB: rootGiB,
		ENIs: typ.ENIs, IPv4PerENI: typ.IPv4PerENI,
		UserData: i.UserData,
	}
	if typ.Arch == "arm64" {
		m.Arch = "arm64"
	}
	if typ.DefaultCard < len(typ.Cards) {
		m.ENIs = typ.Cards[typ.DefaultCard].ENIs
	}
	m.Devices = map[string]int64{}
	for _, a := range []struct {
		manufacturer string
		count        int
	}{{typ.GPU.Manufacturer, typ.GPU.Count}, {typ.Accelerator.Manufacturer, typ.Accelerator.Count}} {
		if name := deviceResource(a.manufacturer); name != "" && a.count > 0 {
			m.Devices[name] = int64(a.count)
		}
	}
	return m
}

// deviceResource is the name under which the usual device plugin of a
// manufacturer reports its devices.
func deviceResource(manufacturer string) string {
	switch manufacturer {
	case "NVIDIA":
		return "nvidia.com/gpu"
	case "AMD":
		return "amd.com/gpu"
	case "AWS":
		return "aws.amazon.com/neuron"
	case "Habana":
		return "habana.ai/gaudi"
	}
	return ""
}
