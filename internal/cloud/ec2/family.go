package ec2

// family is an AMI family: how a node of it is told to join, and how its kubelet
// sizes itself.
type family string

const (
	al2          family = "AL2"
	al2023       family = "AL2023"
	bottlerocket family = "Bottlerocket"
	custom       family = "Custom"
	windows2019  family = "Windows2019"
	windows2022  family = "Windows2022"
	windows2025  family = "Windows2025"
)

func (f family) windows() bool {
	return f == windows2019 || f == windows2022 || f == windows2025
}

// windowsBuild is the value of node.kubernetes.io/windows-build.
func (f family) windowsBuild() string {
	switch f {
	case windows2019:
		return "10.0.17763"
	case windows2022:
		return "10.0.20348"
	case windows2025:
		return "10.0.26100"
	}
	return ""
}

// podsLimitedByENIs says whether pods take their addresses from the instance's
// network interfaces one by one.
func (f family) podsLimitedByENIs() bool { return !f.windows() }

// reservesByENIs says whether the image sizes the kubelet's reserved memory by the
// pods that the interfaces allow, whatever maxPods says: bootstrap.sh and nodeadm do.
func (f family) reservesByENIs() bool { return f == al2 || f == al2023 || f == custom }

// podsPerCore says whether the kubelet's podsPerCore can be set.
// https://github.com/bottlerocket-os/bottlerocket/issues/1721
func (f family) podsPerCore() bool { return f != bottlerocket && !f.windows() }

// evictsSoftly says whether soft eviction can be set.
func (f family) evictsSoftly() bool { return !f.windows() }

// registersWithTaints says whether the user data makes the kubelet register with the
// pool's taints, so that nobody has to add them.
func (f family) registersWithTaints() bool { return f != custom }

// podVolume is the device that holds pods' files, and "" for a family whose image
// we know nothing of.
func (f family) podVolume() string {
	switch {
	case f == bottlerocket:
		return "/dev/xvdb"
	case f.windows():
		return "/dev/sda1"
	case f == custom:
		return ""
	}
	return "/dev/xvda"
}

// defaultVolumeGiB is the size of a disk that nothing says the size of.
const defaultVolumeGiB = 20

// defaultVolumes are the block devices of a class that names none: gp3, encrypted,
// deleted with the instance.
func (f family) defaultVolumes() []volume {
	switch {
	case f == bottlerocket:
		// The first holds the system, which is read-only, the second everything else.
		return []volume{{"/dev/xvda", 6}, {"/dev/xvdb", defaultVolumeGiB}}
	case f.windows():
		return []volume{{"/dev/sda1", 50}}
	case f == custom:
		return nil
	}
	return []volume{{"/dev/xvda", defaultVolumeGiB}}
}

// volume is a default block device and its size in GiB.
type volume struct {
	device string
	gib    int64
}
