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
//
// +kubebuilder:validation:XValidation:rule="self.operator != 'In' || has(self.values) && size(self.values) > 0",message="operator In needs at least one value",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="!(self.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || has(self.values) && size(self.values) == 1 && int(self.values[0]) >= 0",message="operators Gt, Lt, Gte and Lte need one value, a whole number that isn't negative",fieldPath=".values"
// +kubebuilder:validation:XValidation:rule="self.operator != 'In' || !has(self.minValues) || !has(self.values) || size(self.values) == 0 || size(self.values) >= self.minValues",message="minValues asks for more values than there are",fieldPath=".minValues"
type NodeSelectorRequirementWithMinValues struct {
	// Key is the label that the requirement is about.
	//
	// +required
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('karpenter.sh') || self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || !self.split('/')[0].endsWith('karpenter.sh')",message="labels under karpenter.sh other than karpenter.sh/capacity-type are set by the controller"
	// +kubebuilder:validation:XValidation:rule="!self.contains('karpenter.k8s.aws') || self in ['karpenter.k8s.aws/capacity-reservation-id', 'karpenter.k8s.aws/capacity-reservation-interruptible', 'karpenter.k8s.aws/capacity-reservation-type', 'karpenter.k8s.aws/ec2nodeclass', 'karpenter.k8s.aws/instance-accelerator-count', 'karpenter.k8s.aws/instance-accelerator-manufacturer', 'karpenter.k8s.aws/instance-accelerator-name', 'karpenter.k8s.aws/instance-capability-flex', 'karpenter.k8s.aws/instance-category', 'karpenter.k8s.aws/instance-cpu', 'karpenter.k8s.aws/instance-cpu-manufacturer', 'karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz', 'karpenter.k8s.aws/instance-ebs-bandwidth', 'karpenter.k8s.aws/instance-encryption-in-transit-supported', 'karpenter.k8s.aws/instance-family', 'karpenter.k8s.aws/instance-generation', 'karpenter.k8s.aws/instance-gpu-count', 'karpenter.k8s.aws/instance-gpu-manufacturer', 'karpenter.k8s.aws/instance-gpu-memory', 'karpenter.k8s.aws/instance-gpu-name', 'karpenter.k8s.aws/instance-hypervisor', 'karpenter.k8s.aws/instance-local-nvme', 'karpenter.k8s.aws/instance-memory', 'karpenter.k8s.aws/instance-network-bandwidth', 'karpenter.k8s.aws/instance-size', 'karpenter.k8s.aws/instance-tenancy', 'karpenter.k8s.aws/placement-group-id', 'karpenter.k8s.aws/placement-group-partition'] || !self.split('/')[0].endsWith('karpenter.k8s.aws')",message="labels under karpenter.k8s.aws other than those of instances are set by the controller"
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
	// MinValues is how many different values of the label the types that a node
	// may be launched as must have among them. Scheduling fails when fewer remain.
	// This field is alpha in Karpenter.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	MinValues *int `json:"minValues,omitempty"`
}
