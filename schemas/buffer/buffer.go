package buffer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityBuffer keeps room for pods that don't exist yet.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=capacitybuffers,scope=Namespaced,categories=autoscaling,shortName=cb
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.provisioningStrategy",description="How the room is kept."
// +kubebuilder:printcolumn:name="PodTemplate",type="string",JSONPath=".status.podTemplateRef.name",description="The pod template that one chunk has the shape of."
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".status.replicas",description="How many chunks there are."
// +kubebuilder:printcolumn:name="ConditionsType",type="string",JSONPath=".status.conditions[*].type",description="The types of all conditions."
// +kubebuilder:printcolumn:name="ConditionsStatus",type="string",JSONPath=".status.conditions[*].status",description="The statuses of all conditions."
// +kubebuilder:printcolumn:name="ConditionsReason",type="string",JSONPath=".status.conditions[*].reason",description="The reasons of all conditions."
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="The age of the buffer."
type CapacityBuffer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CapacityBufferSpec `json:"spec"`
	// +optional
	Status CapacityBufferStatus `json:"status,omitempty"`
}

// CapacityBufferSpec says how much room is kept, in chunks of one pod each.
//
// +kubebuilder:validation:XValidation:rule="!has(self.podTemplateRef) || !has(self.scalableRef)",message="set 'podTemplateRef' or 'scalableRef', not both"
// +kubebuilder:validation:XValidation:rule="has(self.replicas) || has(self.limits) || !has(self.podTemplateRef)",message="'podTemplateRef' needs 'replicas' or 'limits'"
type CapacityBufferSpec struct {
	// ProvisioningStrategy says how the room is kept.
	//
	// +optional
	// +kubebuilder:default="buffer.x-k8s.io/active-capacity"
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// PodTemplateRef names a PodTemplate in the same namespace that a chunk has the
	// shape of.
	//
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// ScalableRef names a workload in the same namespace whose pods a chunk has the
	// shape of.
	//
	// +optional
	ScalableRef *ScalableRef `json:"scalableRef,omitempty"`
	// Replicas is how many chunks there are to be.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Percentage is how many chunks there are to be, of the replicas of ScalableRef,
	// rounded up and at least one.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Percentage *int32 `json:"percentage,omitempty"`
	// Limits bound what all chunks add up to. With neither Replicas nor Percentage,
	// there are as many chunks as fit in them.
	//
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// LocalObjectRef names an object in the same namespace.
type LocalObjectRef struct {
	// Name of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// ScalableRef names a workload in the same namespace.
type ScalableRef struct {
	// APIGroup of the workload, empty for the core group.
	//
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the workload.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
	// Name of the workload.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// CapacityBufferStatus is what was observed.
type CapacityBufferStatus struct {
	// Conditions say whether the room is there.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PodTemplateRef names the PodTemplate that a chunk has the shape of.
	//
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// Replicas is how many chunks there are.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// PodTemplateGeneration is the generation of the PodTemplate that was read.
	//
	// +optional
	PodTemplateGeneration *int64 `json:"podTemplateGeneration,omitempty"`
	// ProvisioningStrategy is the one that is followed.
	//
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
}

// CapacityBufferList is a page of CapacityBuffers.
//
// +kubebuilder:object:root=true
type CapacityBufferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapacityBuffer `json:"items"`
}

// Conditions of a CapacityBuffer.
const (
	// ConditionReadyForProvisioning is true when the shape and number of chunks are known.
	ConditionReadyForProvisioning = "ReadyForProvisioning"
	// ConditionProvisioning says whether the chunks fit on nodes that exist.
	ConditionProvisioning = "Provisioning"
	// ConditionLimitedByQuotas is true when a quota keeps the buffer small.
	ConditionLimitedByQuotas = "LimitedByQuotas"
)

// StrategyActive keeps room by having nodes for it.
const StrategyActive = "buffer.x-k8s.io/active-capacity"

// GetConditions returns the conditions as they stand in the object.
func (b *CapacityBuffer) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the conditions.
func (b *CapacityBuffer) SetConditions(l []metav1.Condition) { b.Status.Conditions = l }
