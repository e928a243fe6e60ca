package coppice

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConflictPolicy says who wins a field that Git holds and that somebody else has
// written.
type ConflictPolicy string

// Conflict policies.
const (
	// ConflictForce sets Git's value, and reports another one as drift.
	ConflictForce ConflictPolicy = "force"
	// ConflictYield leaves the field to whoever wrote it: it isn't applied, and what
	// it holds is no drift.
	ConflictYield ConflictPolicy = "yield"
	// ConflictFail refuses a commit that would set the field.
	ConflictFail ConflictPolicy = "fail"
)

// ConflictRule is about fields that Git holds and that somebody else has written
// another value to. Who wrote a field is its newest field manager.
//
// +kubebuilder:validation:XValidation:rule="has(self.paths) || has(self.managers)",message="a rule needs 'paths', 'managers' or both"
type ConflictRule struct {
	// Paths are JSON pointers (RFC 6901) to fields, as in /spec/limits; what is below
	// one counts too. An entry of a list belongs to the list as a whole. Without
	// paths, the rule is about every field.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^(/([^~/]|~[01])+)+$`
	Paths []string `json:"paths,omitempty"`
	// Managers are field managers; * stands for any characters. Without managers, the
	// rule is about everybody.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Managers []string `json:"managers,omitempty"`
	// Kind is NodePool or EC2NodeClass, or left out for any.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// Name of the object; * stands for any characters. Left out for any.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Policy is force, yield or fail.
	//
	// +required
	// +kubebuilder:validation:Enum=force;yield;fail
	Policy ConflictPolicy `json:"policy"`
	// Expires is when the rule ceases to hold. Without it the rule stands.
	//
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
}

// SourceReference names a NodeSource.
type SourceReference struct {
	// Name of the NodeSource.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the NodeSource; its own if left out.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// DriftAnnotation on an object in Git gives it a drift mode of its own: warn,
// correct or off.
const DriftAnnotation = Group + "/drift"

// FleetSummary sums up the nodes of a source's pools that aren't as declared.
type FleetSummary struct {
	// Drifted counts NodeClaims that are to be replaced.
	//
	// +required
	Drifted int32 `json:"drifted"`
	// Items are sorted by pool and reason.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Items []FleetItem `json:"items,omitempty"`
}

// FleetItem counts the nodes of one pool that differ in one way.
type FleetItem struct {
	// Pool is the NodePool's name.
	//
	// +required
	Pool string `json:"pool"`
	// Reason is that of the NodeClaims' condition Drifted, as in NodePoolDrifted,
	// RequirementsDrifted, NodeClassDrift, AMIDrift, SubnetDrift or
	// SecurityGroupDrift. Tags are part of NodeClassDrift.
	//
	// +required
	Reason string `json:"reason"`
	// Nodes counts the NodeClaims.
	//
	// +required
	Nodes int32 `json:"nodes"`
}

// OrphanSummary lists NodePools and EC2NodeClasses that no source has.
type OrphanSummary struct {
	// Objects counts them.
	//
	// +required
	Objects int32 `json:"objects"`
	// Items are the first of them as kind and name, sorted.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Items []string `json:"items,omitempty"`
}
