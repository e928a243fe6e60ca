package overlay

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeOverlay changes what scheduling believes about instance types: their price,
// and extended resources that the cloud doesn't know of.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeoverlays,scope=Cluster,categories=karpenter,shortName=overlays
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Weight",type="integer",JSONPath=".spec.weight",priority=1
type NodeOverlay struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodeOverlaySpec `json:"spec"`
	// +optional
	Status NodeOverlayStatus `json:"status,omitempty"`
}

// NodeOverlaySpec says which offerings are changed, and how.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.price) && has(self.priceAdjustment))",message="set 'price' or 'priceAdjustment', not both"
type NodeOverlaySpec struct {
	// Requirements match instance types and offerings by the labels that a node of
	// theirs would have, its pool's included.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Requirements []NodeSelectorRequirement `json:"requirements"`
	// PriceAdjustment is added to the price, as in +0.02 or -15%. The result is never
	// below zero.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^([+-]([0-9]+|[0-9]*\.[0-9]+)|\+([0-9]+|[0-9]*\.[0-9]+)%|-[0-9]{1,2}(\.[0-9]+)?%|-100%)$`
	PriceAdjustment *string `json:"priceAdjustment,omitempty"`
	// Price in dollars per hour takes the place of the cloud's.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	Price *string `json:"price,omitempty"`
	// Capacity adds extended resources. Those that every node has can't be changed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.exists(r, r in ['cpu', 'memory', 'ephemeral-storage', 'pods'])",message="capacity can't change cpu, memory, ephemeral-storage or pods"
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Weight decides between overlays that match the same offering: the highest
	// counts, and of equal ones the name that sorts last. Unset counts as 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Weight *int32 `json:"weight,omitempty"`
}

// NodeSelectorRequirement matches by one label.
//
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['In', 'NotIn']) || has(self.values) && size(self.values) > 0",message="operators In and NotIn need at least one value",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || has(self.values) && size(self.values) == 1 && int(self.values[0]) >= 0",message="operators Gt, Lt, Gte and Lte need one value, a whole number that isn't negative",fieldPath=".values"
type NodeSelectorRequirement struct {
	// Key is the label that the requirement is about.
	//
	// +required
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('karpenter.sh') || self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || !self.split('/')[0].endsWith('karpenter.sh')",message="labels under karpenter.sh other than karpenter.sh/capacity-type are set by the controller"
	// +kubebuilder:validation:XValidation:rule="!self.contains('karpenter.k8s.aws') || self in ['karpenter.k8s.aws/ec2nodeclass', 'karpenter.k8s.aws/instance-accelerator-count', 'karpenter.k8s.aws/instance-accelerator-manufacturer', 'karpenter.k8s.aws/instance-accelerator-name', 'karpenter.k8s.aws/instance-capability-flex', 'karpenter.k8s.aws/instance-category', 'karpenter.k8s.aws/instance-cpu', 'karpenter.k8s.aws/instance-cpu-manufacturer', 'karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz', 'karpenter.k8s.aws/instance-ebs-bandwidth', 'karpenter.k8s.aws/instance-encryption-in-transit-supported', 'karpenter.k8s.aws/instance-family', 'karpenter.k8s.aws/instance-generation', 'karpenter.k8s.aws/instance-gpu-count', 'karpenter.k8s.aws/instance-gpu-manufacturer', 'karpenter.k8s.aws/instance-gpu-memory', 'karpenter.k8s.aws/instance-gpu-name', 'karpenter.k8s.aws/instance-hypervisor', 'karpenter.k8s.aws/instance-local-nvme', 'karpenter.k8s.aws/instance-memory', 'karpenter.k8s.aws/instance-network-bandwidth', 'karpenter.k8s.aws/instance-size'] || !self.split('/')[0].endsWith('karpenter.k8s.aws')",message="labels under karpenter.k8s.aws other than those of instances are set by the controller"
	// +kubebuilder:validation:XValidation:rule="self != 'kubernetes.io/hostname'",message="kubernetes.io/hostname is different on every node and can't be required"
	Key string `json:"key"`
	// Operator says how the label's value relates to Values. Gt, Lt, Gte and Lte
	// compare integers.
	//
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt;Gte;Lte
	Operator corev1.NodeSelectorOperator `json:"operator"`
	// Values has at least one entry for In and NotIn, none for Exists and
	// DoesNotExist, and exactly one, a non-negative integer, for Gt, Lt, Gte and Lte.
	//
	// +optional
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// NodeOverlayStatus is what was observed.
type NodeOverlayStatus struct {
	// Conditions say whether the overlay is in effect.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeOverlayList is a page of NodeOverlays.
//
// +kubebuilder:object:root=true
type NodeOverlayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeOverlay `json:"items"`
}

// Conditions of a NodeOverlay.
const (
	// ConditionReady sums up the others.
	ConditionReady = "Ready"
	// ConditionValidationSucceeded is false when the overlay is wrong, or when another
	// one of equal weight changes the same.
	ConditionValidationSucceeded = "ValidationSucceeded"
)

// GetConditions returns the conditions as they stand in the object.
func (o *NodeOverlay) GetConditions() []metav1.Condition { return o.Status.Conditions }

// SetConditions replaces the conditions.
func (o *NodeOverlay) SetConditions(l []metav1.Condition) { o.Status.Conditions = l }
