package karpenter

import corev1 "k8s.io/api/core/v1"

// Capacity types, values of LabelCapacityType.
const (
	CapacityTypeSpot     = "spot"
	CapacityTypeOnDemand = "on-demand"
	CapacityTypeReserved = "reserved"
)

// Architectures, values of corev1.LabelArchStable.
const (
	ArchitectureAmd64 = "amd64"
	ArchitectureArm64 = "arm64"
)

// Labels of nodes and NodeClaims.
const (
	// LabelNodePool names the pool of a node. Nobody but the controller sets it.
	LabelNodePool = Group + "/nodepool"
	// LabelCapacityType is spot, on-demand or reserved.
	LabelCapacityType = Group + "/capacity-type"
	// LabelInitialized is "true" once startup taints are gone and resources are there.
	LabelInitialized = Group + "/initialized"
	// LabelRegistered is "true" once the controller has met the node.
	LabelRegistered = Group + "/registered"
	// LabelDoNotSyncTaints is "true" on nodes that register with their taints already
	// on them, so that the controller adds none.
	LabelDoNotSyncTaints = Group + "/do-not-sync-taints"
	// LabelWindowsBuild is the Windows build of the node.
	LabelWindowsBuild = corev1.LabelWindowsBuild
)

// Annotations.
const (
	// AnnotationDoNotDisrupt is "true" on a pod, NodeClaim or node that nothing may
	// take away voluntarily. On a pod it may be a duration since the pod's start.
	AnnotationDoNotDisrupt = Group + "/do-not-disrupt"
	// AnnotationDoNotRepair is "true" on a NodeClaim or node that isn't replaced for
	// being unhealthy. Since Karpenter 1.15.
	AnnotationDoNotRepair = Group + "/do-not-repair"
	// AnnotationNodePoolHash is NodePool.Hash at the time the claim was made.
	AnnotationNodePoolHash = Group + "/nodepool-hash"
	// AnnotationNodePoolHashVersion is NodePoolHashVersion of who wrote the hash.
	AnnotationNodePoolHashVersion = Group + "/nodepool-hash-version"
	// AnnotationTerminationTimestamp is when a claim's drain ends by force, in RFC 3339.
	AnnotationTerminationTimestamp = Group + "/nodeclaim-termination-timestamp"
	// AnnotationMinValuesRelaxed is "true" on a claim launched with fewer values than
	// minValues asks for.
	AnnotationMinValuesRelaxed = Group + "/nodeclaim-min-values-relaxed"
	// AnnotationPriceOverlayApplied marks a claim whose prices came from a NodeOverlay.
	AnnotationPriceOverlayApplied = Group + "/price-overlay-applied"
	// AnnotationCapacityOverlayApplied marks a claim whose capacity came from a NodeOverlay.
	AnnotationCapacityOverlayApplied = Group + "/capacity-overlay-applied"
	// AnnotationDisruptionCost on a pod says how much its eviction costs, as a 32-bit
	// integer. Since Karpenter 1.15.
	AnnotationDisruptionCost = Group + "/disruption-cost"
	// AnnotationRebootPreBootID is the boot id of a node before a reboot was asked
	// for. Since Karpenter 1.15.
	AnnotationRebootPreBootID = Group + "/reboot-pre-boot-id"
	// AnnotationRebootTerminationGracePeriod bounds the drain before a reboot. Since
	// Karpenter 1.15.
	AnnotationRebootTerminationGracePeriod = Group + "/reboot-termination-grace-period"
)

// Keys of taints. The corresponding corev1.Taint values are DisruptedTaint,
// UnregisteredTaint and RebootingTaint.
const (
	// TaintDisrupted is on a node that is about to go.
	TaintDisrupted = Group + "/disrupted"
	// TaintUnregistered is on a node that the controller hasn't met yet.
	TaintUnregistered = Group + "/unregistered"
	// TaintRebooting is on a node that is about to reboot. Since Karpenter 1.15.
	TaintRebooting = Group + "/rebooting"
)

// Finalizer is on NodeClaims and nodes until the instance is gone.
const Finalizer = Group + "/termination"

// LabelExcludeFromLoadBalancersValue is what the label
// corev1.LabelNodeExcludeBalancers is set to on a draining node.
const LabelExcludeFromLoadBalancersValue = "karpenter"

// DisruptedTaint keeps new pods off a node that is about to go.
func DisruptedTaint() corev1.Taint {
	return corev1.Taint{Key: TaintDisrupted, Effect: corev1.TaintEffectNoSchedule}
}

// UnregisteredTaint keeps pods off a node until the controller has met it.
func UnregisteredTaint() corev1.Taint {
	return corev1.Taint{Key: TaintUnregistered, Effect: corev1.TaintEffectNoExecute}
}

// RebootingTaint keeps new pods off a node that is about to reboot.
func RebootingTaint() corev1.Taint {
	return corev1.Taint{Key: TaintRebooting, Effect: corev1.TaintEffectNoSchedule}
}

// NormalizedLabel returns today's name of a label that has an older one, or key itself.
func NormalizedLabel(key string) string {
	switch key {
	case corev1.LabelFailureDomainBetaZone:
		return corev1.LabelTopologyZone
	case corev1.LabelFailureDomainBetaRegion:
		return corev1.LabelTopologyRegion
	case "beta.kubernetes.io/arch":
		return corev1.LabelArchStable
	case "beta.kubernetes.io/os":
		return corev1.LabelOSStable
	case corev1.LabelInstanceType:
		return corev1.LabelInstanceTypeStable
	}
	return key
}

// WellKnownLabels lists, sorted, the labels that a node has whether or not its
// pool names them and that a pool may narrow. A cloud has more of its own.
func WellKnownLabels() []string {
	return []string{
		LabelCapacityType,
		LabelNodePool,
		corev1.LabelArchStable,
		corev1.LabelOSStable,
		corev1.LabelInstanceTypeStable,
		LabelWindowsBuild,
		corev1.LabelTopologyRegion,
		corev1.LabelTopologyZone,
	}
}
