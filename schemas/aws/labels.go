package aws

// Labels of nodes that say what EC2 instance a node runs on. A pool's
// requirements may use all of them.
const (
	LabelInstanceHypervisor                   = Group + "/instance-hypervisor"
	LabelInstanceEncryptionInTransitSupported = Group + "/instance-encryption-in-transit-supported"
	LabelInstanceCategory                     = Group + "/instance-category"
	LabelInstanceCapabilityFlex               = Group + "/instance-capability-flex"
	LabelInstanceFamily                       = Group + "/instance-family"
	LabelInstanceGeneration                   = Group + "/instance-generation"
	// LabelInstanceLocalNVME is the size of the local disks in GB.
	LabelInstanceLocalNVME = Group + "/instance-local-nvme"
	LabelInstanceSize      = Group + "/instance-size"
	// LabelInstanceCPU is the number of vCPUs.
	LabelInstanceCPU                       = Group + "/instance-cpu"
	LabelInstanceCPUManufacturer           = Group + "/instance-cpu-manufacturer"
	LabelInstanceCPUSustainedClockSpeedMHz = Group + "/instance-cpu-sustained-clock-speed-mhz"
	// LabelInstanceMemory is in MiB.
	LabelInstanceMemory = Group + "/instance-memory"
	// LabelInstanceEBSBandwidth and LabelInstanceNetworkBandwidth are in Mbit/s.
	LabelInstanceEBSBandwidth            = Group + "/instance-ebs-bandwidth"
	LabelInstanceNetworkBandwidth        = Group + "/instance-network-bandwidth"
	LabelInstanceGPUName                 = Group + "/instance-gpu-name"
	LabelInstanceGPUManufacturer         = Group + "/instance-gpu-manufacturer"
	LabelInstanceGPUCount                = Group + "/instance-gpu-count"
	LabelInstanceGPUMemory               = Group + "/instance-gpu-memory"
	LabelInstanceAcceleratorName         = Group + "/instance-accelerator-name"
	LabelInstanceAcceleratorManufacturer = Group + "/instance-accelerator-manufacturer"
	LabelInstanceAcceleratorCount        = Group + "/instance-accelerator-count"
	// LabelInstanceTenancy is default, dedicated or host.
	LabelInstanceTenancy                  = Group + "/instance-tenancy"
	LabelCapacityReservationID            = Group + "/capacity-reservation-id"
	LabelCapacityReservationType          = Group + "/capacity-reservation-type"
	LabelCapacityReservationInterruptible = Group + "/capacity-reservation-interruptible"
	LabelPlacementGroupID                 = Group + "/placement-group-id"
	LabelPlacementGroupPartition          = Group + "/placement-group-partition"
	// LabelNodeClass names the EC2NodeClass.
	LabelNodeClass = Group + "/ec2nodeclass"
	// LabelTopologyZoneID is the zone's id, the same in every account.
	LabelTopologyZoneID = "topology.k8s.aws/zone-id"
	// LabelEBSTopologyZone is the EBS driver's name of the zone label.
	LabelEBSTopologyZone = "topology.ebs.csi.aws.com/zone"
)

// Annotations.
const (
	// AnnotationEC2NodeClassHash is EC2NodeClass.Hash at the time a claim was made.
	AnnotationEC2NodeClassHash = Group + "/ec2nodeclass-hash"
	// AnnotationEC2NodeClassHashVersion is EC2NodeClassHashVersion of who wrote the hash.
	AnnotationEC2NodeClassHashVersion = Group + "/ec2nodeclass-hash-version"
	// AnnotationInstanceTagged is "true" on a claim whose instance has its later tags.
	AnnotationInstanceTagged = Group + "/tagged"
	// AnnotationClusterNameTaggedCompatibility is "true" on a claim whose instance has
	// the cluster name tag.
	AnnotationClusterNameTaggedCompatibility = "compatibility." + Group + "/cluster-name-tagged"
	// AnnotationInstanceProfile is the instance profile that a claim was launched with.
	AnnotationInstanceProfile = Group + "/instance-profile-name"
)

// Finalizer is on an EC2NodeClass until no claim needs it.
const Finalizer = Group + "/termination"

// Tags of instances.
const (
	TagNodePool  = "karpenter.sh/nodepool"
	TagNodeClaim = "karpenter.sh/nodeclaim"
	TagNodeClass = LabelNodeClass
	// TagEKSClusterName is the cluster's name.
	TagEKSClusterName = "eks:eks-cluster-name"
	// TagClusterPrefix and the cluster's name make a tag with the value owned.
	TagClusterPrefix = "kubernetes.io/cluster/"
	TagName          = "Name"
)

// Extended resources of EC2 instances.
const (
	ResourceNVIDIAGPU     = "nvidia.com/gpu"
	ResourceAMDGPU        = "amd.com/gpu"
	ResourceAWSNeuron     = "aws.amazon.com/neuron"
	ResourceAWSNeuronCore = "aws.amazon.com/neuroncore"
	ResourceHabanaGaudi   = "habana.ai/gaudi"
	ResourceAWSPodENI     = "vpc.amazonaws.com/pod-eni"
	ResourcePrivateIPv4   = "vpc.amazonaws.com/PrivateIPv4Address"
	ResourceEFA           = "vpc.amazonaws.com/efa"
)

// WellKnownLabels lists, sorted, the labels of this package that a node has
// whether or not its pool names them and that a pool may narrow.
func WellKnownLabels() []string {
	return []string{
		LabelCapacityReservationID,
		LabelCapacityReservationInterruptible,
		LabelCapacityReservationType,
		LabelNodeClass,
		LabelInstanceAcceleratorCount,
		LabelInstanceAcceleratorManufacturer,
		LabelInstanceAcceleratorName,
		LabelInstanceCapabilityFlex,
		LabelInstanceCategory,
		LabelInstanceCPU,
		LabelInstanceCPUManufacturer,
		LabelInstanceCPUSustainedClockSpeedMHz,
		LabelInstanceEBSBandwidth,
		LabelInstanceEncryptionInTransitSupported,
		LabelInstanceFamily,
		LabelInstanceGeneration,
		LabelInstanceGPUCount,
		LabelInstanceGPUManufacturer,
		LabelInstanceGPUMemory,
		LabelInstanceGPUName,
		LabelInstanceHypervisor,
		LabelInstanceLocalNVME,
		LabelInstanceMemory,
		LabelInstanceNetworkBandwidth,
		LabelInstanceSize,
		LabelInstanceTenancy,
		LabelPlacementGroupID,
		LabelPlacementGroupPartition,
		LabelTopologyZoneID,
	}
}
