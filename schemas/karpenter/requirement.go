package karpenter

import corev1 "k8s.io/api/core/v1"

// Operators that go beyond those of corev1.NodeSelectorOperator.
const (
	// OperatorGte matches integers that are at least the value.
	OperatorGte corev1.NodeSelectorOperator = "Gte"
	// OperatorLte matches integers that are at most the value.
	OperatorLte corev1.NodeSelectorOperator = "Lte"
)

// NodeSelectorRequirementWithMinValues narrows the nodes that may be launched by
// one label, and says how many different values of it must stay possible.
type NodeSelectorRequirementWithMinValues struct {
	// Key is the label that the requirement is about.
	//
	// +required
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
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
	// MinValues is how many different values of the label the types that a node
	// may be launched as must have among them. Scheduling fails when fewer remain.
	// This field is alpha in Karpenter.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	MinValues *int `json:"minValues,omitempty"`
}
