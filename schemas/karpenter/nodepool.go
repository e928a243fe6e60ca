package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePool says which nodes may be launched for pods that find no place, and
// when such nodes may be taken away again.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodepools,scope=Cluster,categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.nodes
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.template.spec.nodeClassRef.name"
// +kubebuilder:printcolumn:name="Nodes",type="string",JSONPath=".status.nodes"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Weight",type="integer",JSONPath=".spec.weight",priority=1
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.resources.cpu",priority=1
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.resources.memory",priority=1
type NodePool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodePoolSpec `json:"spec"`
	// +optional
	Status NodePoolStatus `json:"status,omitempty"`
}

// NodePoolSpec is what an operator asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.replicas) == has(oldSelf.replicas)",message="a NodePool stays static (with replicas) or dynamic (without): replicas can be neither added nor removed later"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.limits) || self.limits.all(name, name == 'nodes')",message="a NodePool with replicas can limit nothing but 'nodes'"
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.weight))",message="a NodePool with replicas takes no 'weight': it isn't chosen by pods"
type NodePoolSpec struct {
	// Template is what every node of the pool is launched from. A node is usually
	// narrower than its template, by what the pods on it need.
	//
	// +required
	Template NodeClaimTemplate `json:"template"`
	// Disruption says when and how fast nodes may be taken away for cause: unused,
	// underused, or no longer as declared.
	//
	// +optional
	// +kubebuilder:default:={consolidateAfter: "0s"}
	Disruption Disruption `json:"disruption,omitzero"`
	// Limits bound what the pool's nodes may add up to, by resource. The resource
	// "nodes" counts them. A static pool takes that one alone.
	//
	// +optional
	Limits Limits `json:"limits,omitempty"`
	// Weight ranks pools that fit a pod equally: the highest is tried first. Unset
	// counts as 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight *int32 `json:"weight,omitempty"`
	// Replicas makes the pool static: it keeps this many nodes whether or not pods
	// need them. Consolidation settings don't apply then, and neither weight nor
	// limits other than "nodes" may be set. This field is alpha in Karpenter.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int64 `json:"replicas,omitempty"`
}

// Limits maps resource names to upper bounds.
type Limits corev1.ResourceList

// Disruption says when nodes may be taken away for cause.
type Disruption struct {
	// ConsolidateAfter is how long no pod may have come to or left a node before
	// the node counts as settled and may be consolidated, or Never.
	//
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	ConsolidateAfter NillableDuration `json:"consolidateAfter,omitzero"`
	// ConsolidationPolicy says which nodes may be consolidated: those without pods
	// (WhenEmpty), those whose pods fit cheaper elsewhere too
	// (WhenEmptyOrUnderutilized), or of the latter those where the saving outweighs
	// the disruption (Balanced).
	//
	// +optional
	// +kubebuilder:default="WhenEmptyOrUnderutilized"
	// +kubebuilder:validation:Enum=WhenEmpty;WhenEmptyOrUnderutilized;Balanced
	ConsolidationPolicy ConsolidationPolicy `json:"consolidationPolicy,omitempty"`
	// Budgets bound how many nodes may be on their way out at once. Of those that
	// are active and name the reason, the smallest counts.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:default:={{nodes: "10%"}}
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.all(b, has(b.schedule) ? has(b.duration) : !has(b.duration))",message="a budget has both 'schedule' and 'duration', or neither"
	Budgets []Budget `json:"budgets,omitempty"`
}

// ConsolidationPolicy says which nodes may be consolidated.
type ConsolidationPolicy string

// Consolidation policies.
const (
	ConsolidationPolicyWhenEmpty                ConsolidationPolicy = "WhenEmpty"
	ConsolidationPolicyWhenEmptyOrUnderutilized ConsolidationPolicy = "WhenEmptyOrUnderutilized"
	ConsolidationPolicyBalanced                 ConsolidationPolicy = "Balanced"
)

// Budget bounds how many of a pool's nodes may be on their way out at once.
type Budget struct {
	// Reasons are those that the budget applies to; all, when left out.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Reasons []DisruptionReason `json:"reasons,omitempty"`
	// Nodes is a count, or a percentage of the pool's nodes, rounded up.
	//
	// +required
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	Nodes string `json:"nodes"`
	// Schedule is when the budget becomes active: five cron fields or a macro such
	// as @daily, in UTC. A budget without one is always active.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$`
	Schedule *string `json:"schedule,omitempty"`
	// Duration is how long the budget stays active each time, in hours and minutes.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$`
	// +kubebuilder:validation:Type=string
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// DisruptionReason says why a node is taken away.
//
// +kubebuilder:validation:Enum=Underutilized;Empty;Drifted;Unhealthy
type DisruptionReason string

// Reasons that a budget can name.
const (
	DisruptionReasonUnderutilized DisruptionReason = "Underutilized"
	DisruptionReasonEmpty         DisruptionReason = "Empty"
	DisruptionReasonDrifted       DisruptionReason = "Drifted"
	// DisruptionReasonUnhealthy came with Karpenter 1.15.
	DisruptionReasonUnhealthy DisruptionReason = "Unhealthy"
)

// NodeClaimTemplate is what a pool's NodeClaims, and through them its nodes, are
// made from.
type NodeClaimTemplate struct {
	// +optional
	ObjectMeta `json:"metadata,omitzero"`
	// +required
	Spec NodeClaimTemplateSpec `json:"spec"`
}

// ObjectMeta is the part of an object's metadata that a template can set.
type ObjectMeta struct {
	// Labels are put on the pool's nodes, and count when pods select nodes.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=100
	// +coppice:values:MaxLength=63
	// +coppice:values:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || !k.split('/')[0].endsWith('karpenter.sh'))",message="labels under karpenter.sh other than karpenter.sh/capacity-type are set by the controller"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['karpenter.k8s.aws/capacity-reservation-id', 'karpenter.k8s.aws/capacity-reservation-interruptible', 'karpenter.k8s.aws/capacity-reservation-type', 'karpenter.k8s.aws/ec2nodeclass', 'karpenter.k8s.aws/instance-accelerator-count', 'karpenter.k8s.aws/instance-accelerator-manufacturer', 'karpenter.k8s.aws/instance-accelerator-name', 'karpenter.k8s.aws/instance-capability-flex', 'karpenter.k8s.aws/instance-category', 'karpenter.k8s.aws/instance-cpu', 'karpenter.k8s.aws/instance-cpu-manufacturer', 'karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz', 'karpenter.k8s.aws/instance-ebs-bandwidth', 'karpenter.k8s.aws/instance-encryption-in-transit-supported', 'karpenter.k8s.aws/instance-family', 'karpenter.k8s.aws/instance-generation', 'karpenter.k8s.aws/instance-gpu-count', 'karpenter.k8s.aws/instance-gpu-manufacturer', 'karpenter.k8s.aws/instance-gpu-memory', 'karpenter.k8s.aws/instance-gpu-name', 'karpenter.k8s.aws/instance-hypervisor', 'karpenter.k8s.aws/instance-local-nvme', 'karpenter.k8s.aws/instance-memory', 'karpenter.k8s.aws/instance-network-bandwidth', 'karpenter.k8s.aws/instance-size', 'karpenter.k8s.aws/instance-tenancy', 'karpenter.k8s.aws/placement-group-id', 'karpenter.k8s.aws/placement-group-partition'] || !k.split('/')[0].endsWith('karpenter.k8s.aws'))",message="labels under karpenter.k8s.aws other than those of instances are set by the controller"
	// +kubebuilder:validation:XValidation:rule="!('karpenter.sh/nodepool' in self)",message="the label karpenter.sh/nodepool is set by the controller"
	// +kubebuilder:validation:XValidation:rule="!('kubernetes.io/hostname' in self)",message="the label kubernetes.io/hostname is set by the kubelet"
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are put on the pool's nodes.
	//
	// +optional
	// +mapType=granular
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeClaimTemplateSpec is a NodeClaimSpec without resource requests, which the
// pods decide.
type NodeClaimTemplateSpec struct {
	// Taints are on the pool's nodes for as long as they live.
	//
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on a node when it registers and are expected to be removed
	// by something else, such as a daemonset. Pods need not tolerate them to cause a
	// launch; the node doesn't count as initialized while it has one.
	//
	// +optional
	// +listType=atomic
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements narrow which instance types, zones, architectures, capacity
	// types and so on the pool's nodes have.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XValidation:rule="self.key != 'karpenter.sh/nodepool'",message="karpenter.sh/nodepool is the pool itself and can't be required",fieldPath=".key"
	Requirements []NodeSelectorRequirementWithMinValues `json:"requirements"`
	// NodeClassRef names the object that holds what is the cloud's own.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group",message="nodeClassRef.group can't be changed"
	// +kubebuilder:validation:XValidation:rule="self.kind == oldSelf.kind",message="nodeClassRef.kind can't be changed"
	NodeClassRef *NodeClassReference `json:"nodeClassRef"`
	// TerminationGracePeriod bounds how long a node may take to drain. When it has
	// passed, pods are deleted whatever protects them. Without it a drain waits for
	// as long as a pod holds out.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:Type=string
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the age at which a node is deleted, or Never.
	//
	// +optional
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	ExpireAfter NillableDuration `json:"expireAfter,omitzero"`
}

// NodePoolStatus is what was observed.
type NodePoolStatus struct {
	// Resources is what the pool's nodes add up to.
	//
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Nodes is how many nodes the pool has.
	//
	// +optional
	// +kubebuilder:default=0
	Nodes *int64 `json:"nodes,omitempty"`
	// NodeClassObservedGeneration is the generation of the node class that the
	// NodeRegistrationHealthy condition speaks of.
	//
	// +optional
	NodeClassObservedGeneration int64 `json:"nodeClassObservedGeneration,omitempty"`
	// Conditions say how the pool is doing.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodePoolList is a page of NodePools.
//
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}

// GetConditions returns the conditions as they stand in the object.
func (p *NodePool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the conditions.
func (p *NodePool) SetConditions(c []metav1.Condition) { p.Status.Conditions = c }

// IsStatic reports whether the pool keeps a fixed number of nodes.
func (p *NodePool) IsStatic() bool { return p.Spec.Replicas != nil }
