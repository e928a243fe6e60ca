package aws

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EC2NodeClassStatus is what the selectors mean at present.
type EC2NodeClassStatus struct {
	// Subnets that the selectors match.
	//
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// SecurityGroups that the selectors match.
	//
	// +optional
	SecurityGroups []SecurityGroup `json:"securityGroups,omitempty"`
	// CapacityReservations that the selectors match.
	//
	// +optional
	CapacityReservations []CapacityReservation `json:"capacityReservations,omitempty"`
	// AMIs that the selectors match, in the order in which they are tried.
	//
	// +optional
	AMIs []AMI `json:"amis,omitempty"`
	// InstanceProfile that instances are launched with.
	//
	// +optional
	InstanceProfile string `json:"instanceProfile,omitempty"`
	// Conditions say what is ready and what isn't.
	//
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Subnet is a subnet that instances are launched into.
type Subnet struct {
	// ID of the subnet.
	//
	// +required
	ID string `json:"id"`
	// Zone is the name of its availability zone.
	//
	// +required
	Zone string `json:"zone"`
	// ZoneID is the id of its availability zone, the same in every account.
	//
	// +optional
	ZoneID string `json:"zoneID,omitempty"`
}

// SecurityGroup is a security group that instances are put in.
type SecurityGroup struct {
	// ID of the security group.
	//
	// +required
	ID string `json:"id"`
	// Name of the security group.
	//
	// +optional
	Name string `json:"name,omitempty"`
}

// AMI is an image that instances are launched from.
type AMI struct {
	// ID of the image.
	//
	// +required
	ID string `json:"id"`
	// Deprecated says that its owner advises against it.
	//
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`
	// Name of the image.
	//
	// +optional
	Name string `json:"name,omitempty"`
	// Requirements that an instance type must meet to run it.
	//
	// +required
	Requirements []corev1.NodeSelectorRequirement `json:"requirements"`
}

// CapacityReservation is capacity that is paid for already.
type CapacityReservation struct {
	// AvailabilityZone is the zone that it is in.
	//
	// +required
	AvailabilityZone string `json:"availabilityZone"`
	// EndTime is when it ends by itself.
	//
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// ID of the reservation.
	//
	// +required
	// +kubebuilder:validation:Pattern="^cr-[0-9a-z]+$"
	ID string `json:"id"`
	// InstanceMatchCriteria is open or targeted.
	//
	// +required
	// +kubebuilder:validation:Enum=open;targeted
	InstanceMatchCriteria string `json:"instanceMatchCriteria"`
	// InstanceType that it is for.
	//
	// +required
	InstanceType string `json:"instanceType"`
	// Interruptible says that its owner may take it back.
	//
	// +optional
	Interruptible bool `json:"interruptible,omitempty"`
	// OwnerID is the account that owns it.
	//
	// +required
	// +kubebuilder:validation:Pattern="^[0-9]{12}$"
	OwnerID string `json:"ownerID"`
	// ReservationType is default or capacity-block.
	//
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:Enum=default;capacity-block
	ReservationType CapacityReservationType `json:"reservationType,omitempty"`
	// State is active, or expiring once EC2 may reclaim a capacity block's instances.
	//
	// +optional
	// +kubebuilder:default=active
	// +kubebuilder:validation:Enum=active;expiring
	State CapacityReservationState `json:"state,omitempty"`
}

// CapacityReservationType is a kind of capacity reservation.
type CapacityReservationType string

// Kinds of capacity reservations.
const (
	CapacityReservationTypeDefault       CapacityReservationType = "default"
	CapacityReservationTypeCapacityBlock CapacityReservationType = "capacity-block"
)

// CapacityReservationState says whether a capacity reservation is about to end.
type CapacityReservationState string

// States of a capacity reservation.
const (
	CapacityReservationStateActive   CapacityReservationState = "active"
	CapacityReservationStateExpiring CapacityReservationState = "expiring"
)

// Conditions of an EC2NodeClass. Ready is true when all others are.
const (
	// ConditionReady sums up the others.
	ConditionReady = "Ready"
	// ConditionSubnetsReady is true when the subnet selectors match something.
	ConditionSubnetsReady = "SubnetsReady"
	// ConditionSecurityGroupsReady is true when the security group selectors do.
	ConditionSecurityGroupsReady = "SecurityGroupsReady"
	// ConditionAMIsReady is true when the image selectors do.
	ConditionAMIsReady = "AMIsReady"
	// ConditionInstanceProfileReady is true when the instance profile exists.
	ConditionInstanceProfileReady = "InstanceProfileReady"
	// ConditionCapacityReservationsReady is true when the reservations were looked up.
	ConditionCapacityReservationsReady = "CapacityReservationsReady"
	// ConditionPlacementGroupReady is true when the placement group exists.
	ConditionPlacementGroupReady = "PlacementGroupReady"
	// ConditionValidationSucceeded is true when EC2 would accept a launch.
	ConditionValidationSucceeded = "ValidationSucceeded"
)
