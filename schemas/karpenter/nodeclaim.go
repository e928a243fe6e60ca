package karpenter

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeClaim stands for one node, from before its instance is launched until
// after the instance is gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeclaims,scope=Cluster,categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".metadata.labels.node\\.kubernetes\\.io/instance-type"
// +kubebuilder:printcolumn:name="Capacity",type="string",JSONPath=".metadata.labels.karpenter\\.sh/capacity-type"
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=".metadata.labels.topology\\.kubernetes\\.io/zone"
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="ImageID",type="string",JSONPath=".status.imageID",priority=1
// +kubebuilder:printcolumn:name="ID",type="string",JSONPath=".status.providerID",priority=1
// +kubebuilder:printcolumn:name="NodePool",type="string",JSONPath=".metadata.labels.karpenter\\.sh/nodepool",priority=1
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.nodeClassRef.name",priority=1
// +kubebuilder:printcolumn:name="Drifted",type="string",JSONPath=".status.conditions[?(@.type==\"Drifted\")].status",priority=1
type NodeClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a NodeClaim can't be changed"
	Spec NodeClaimSpec `json:"spec"`
	// +optional
	Status NodeClaimStatus `json:"status,omitempty"`
}

// NodeClaimSpec is what the node must be. It never changes.
type NodeClaimSpec struct {
	// Taints are on the node for as long as it lives.
	//
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on the node when it registers and are expected to be removed
	// by something else. The node doesn't count as initialized while it has one.
	//
	// +optional
	// +listType=atomic
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements narrow what may be launched.
	//
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Requirements []NodeSelectorRequirementWithMinValues `json:"requirements"`
	// Resources is what the node must have room for.
	//
	// +optional
	Resources ResourceRequirements `json:"resources,omitzero"`
	// NodeClassRef names the object that holds what is the cloud's own.
	//
	// +required
	NodeClassRef *NodeClassReference `json:"nodeClassRef"`
	// TerminationGracePeriod bounds how long the node may take to drain.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:Type=string
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the age at which the node is deleted, or Never.
	//
	// +optional
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	ExpireAfter NillableDuration `json:"expireAfter,omitzero"`
}

// ResourceRequirements is what a node must have room for.
type ResourceRequirements struct {
	// Requests is the least that the node must offer, by resource.
	//
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// NodeClassReference names a node class.
type NodeClassReference struct {
	// Kind of the node class.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="kind can't be empty"
	Kind string `json:"kind"`
	// Name of the node class.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="name can't be empty"
	Name string `json:"name"`
	// Group is the API group of the node class, without a version.
	//
	// +required
	// +kubebuilder:validation:Pattern=`^[^/]*$`
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="group can't be empty"
	Group string `json:"group"`
}

// NodeClaimStatus is what became of the claim.
type NodeClaimStatus struct {
	// NodeName is the name of the node.
	//
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// ProviderID is the instance's identity, as in the node's spec.providerID.
	//
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// ImageID is the image that the instance runs.
	//
	// +optional
	ImageID string `json:"imageID,omitempty"`
	// Capacity is what the instance has, estimated until the node says so itself.
	//
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Allocatable is what pods can have of it.
	//
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Conditions say how far the claim has come.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastPodEventTime is when a pod last came to the node, left it, or ended.
	//
	// +optional
	LastPodEventTime metav1.Time `json:"lastPodEventTime,omitzero"`
}

// NodeClaimList is a page of NodeClaims.
//
// +kubebuilder:object:root=true
type NodeClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeClaim `json:"items"`
}

// leftover is by how much a deadline may lie before the deletion that it is written for:
// it is written first, and the clocks of two machines may differ.
const leftover = time.Minute

// TerminationDeadline is when the claim's drain ends by force, as its annotation says. It
// isn't ok without one, or if a deletion that never came about has left it: a later one
// isn't forced by it.
func (c *NodeClaim) TerminationDeadline() (at time.Time, ok bool, err error) {
	text, ok := c.Annotations[AnnotationTerminationTimestamp]
	if !ok {
		return time.Time{}, false, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return time.Time{}, false, fmt.Errorf("NodeClaim %s: annotation %s: %w; remove or mend it", c.Name, AnnotationTerminationTimestamp, err)
	}
	if d := c.DeletionTimestamp; d != nil && at.Before(d.Add(-leftover)) {
		return time.Time{}, false, nil
	}
	return at, true, nil
}

// InstanceID is the ID of the claim's instance, the last part of its provider ID; ""
// before its launch.
func (c *NodeClaim) InstanceID() string {
	return c.Status.ProviderID[strings.LastIndexByte(c.Status.ProviderID, '/')+1:]
}

// GetConditions returns the conditions as they stand in the object.
func (c *NodeClaim) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *NodeClaim) SetConditions(l []metav1.Condition) { c.Status.Conditions = l }
