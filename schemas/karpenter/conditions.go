package karpenter

// ConditionReady sums up the others, on every kind.
const ConditionReady = "Ready"

// Conditions of a NodeClaim. Ready is true when the first three are.
const (
	// ConditionLaunched is true once the instance exists.
	ConditionLaunched = "Launched"
	// ConditionRegistered is true once the node exists and the controller has met it.
	ConditionRegistered = "Registered"
	// ConditionInitialized is true once pods can run on the node.
	ConditionInitialized = "Initialized"
	// ConditionDrifted is true when the claim isn't what would be launched today.
	ConditionDrifted = "Drifted"
	// ConditionConsolidatable is true once consolidateAfter has passed.
	ConditionConsolidatable = "Consolidatable"
	// ConditionDrained is true once no pod is left that has to go.
	ConditionDrained = "Drained"
	// ConditionVolumesDetached is true once the drained pods' volumes are.
	ConditionVolumesDetached = "VolumesDetached"
	// ConditionInstanceTerminating is true once the cloud was told to end the instance.
	ConditionInstanceTerminating = "InstanceTerminating"
	// ConditionDisruptionReason is true on a claim that is being taken away; its
	// reason says why.
	ConditionDisruptionReason = "DisruptionReason"
	// ConditionConsistentStateFound is false when node and claim contradict each other.
	ConditionConsistentStateFound = "ConsistentStateFound"
	// ConditionRebooting is true while a reboot is under way. Since Karpenter 1.15.
	ConditionRebooting = "Rebooting"
)

// Conditions of a NodePool. Ready is true when the first two are.
const (
	// ConditionValidationSucceeded is false when the object is wrong in a way that
	// the API server can't see.
	ConditionValidationSucceeded = "ValidationSucceeded"
	// ConditionNodeClassReady is true when the node class is.
	ConditionNodeClassReady = "NodeClassReady"
	// ConditionNodeRegistrationHealthy is false when about half of the last launches
	// never became nodes.
	ConditionNodeRegistrationHealthy = "NodeRegistrationHealthy"
	// ConditionNodeClaimsDrifted is true while some of the pool's NodeClaims are not
	// what it declares; its message counts them. Karpenter has no such condition.
	ConditionNodeClaimsDrifted = "NodeClaimsDrifted"
	// ConditionPaused is true while the pool's nodes aren't taken away voluntarily; its
	// message says until when, who wants it and why. A pool that isn't paused has no such
	// condition, and Karpenter's none at all.
	ConditionPaused = "Paused"
	// ConditionNoCompatibleInstanceTypes is true while no instance type that the pool's
	// class offers meets its requirements, so that it can open no node; its message says
	// which of them stands in the way. A pool with types has no such condition. Karpenter
	// has an event of this name.
	ConditionNoCompatibleInstanceTypes = "NoCompatibleInstanceTypes"
	// ConditionLaunchBackOff is true once the pool's last launch has come to nothing, until
	// one doesn't; its message says how many did in a row, why, and until when nothing is
	// launched. A pool whose launches work has no such condition, and Karpenter's none at all.
	ConditionLaunchBackOff = "LaunchBackOff"
)
