package coppice

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeSourceStatus is what became of the source. Nothing in it changes while
// nothing happens.
type NodeSourceStatus struct {
	// ObservedGeneration is the generation that the status speaks of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, Reconciling, Stalled and Drifted.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastAttemptedRevision is the commit that was last fetched, as in
	// main@sha1:1b2c...
	//
	// +optional
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`
	// LastAppliedRevision is the commit that the cluster was last made to match.
	//
	// +optional
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`
	// LastHandledReconcileAt is the value of the annotation
	// reconcile.fluxcd.io/requestedAt that was last obeyed.
	//
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// LastPushCommit is the last commit that was pushed to the write-back branch.
	//
	// +optional
	LastPushCommit string `json:"lastPushCommit,omitempty"`
	// Inventory lists the objects that the source has applied and not pruned.
	//
	// +optional
	Inventory *Inventory `json:"inventory,omitempty"`
	// Drift sums up how the cluster differs from the last applied revision. It is
	// left out while there is none.
	//
	// +optional
	Drift *DriftSummary `json:"drift,omitempty"`
	// Fleet sums up the nodes of the source's pools that aren't as declared. It is left
	// out while there are none, and is no config drift: their replacement is under way
	// or held up by budgets.
	//
	// +optional
	Fleet *FleetSummary `json:"fleet,omitempty"`
	// Orphans are NodePools and EC2NodeClasses of the cluster that no source has. Of
	// several sources, the oldest tells of them.
	//
	// +optional
	Orphans *OrphanSummary `json:"orphans,omitempty"`
	// History holds the last five revisions, the newest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []HistoryEntry `json:"history,omitempty"`
}

// Conditions of a NodeSource that are not those of every kind.
const (
	// ConditionDrifted is true while the cluster differs from what was applied.
	ConditionDrifted = "Drifted"
	// ConditionVerified tells whether the last attempted commit is signed as
	// spec.verify wants it; it is left out without spec.verify.
	ConditionVerified = "SourceVerified"
)

// RequestedAtAnnotation asks for a reconciliation now, each time its value
// changes. It is Flux's, so that its tools work.
const RequestedAtAnnotation = "reconcile.fluxcd.io/requestedAt"

// DeliveredAtAnnotation is when a forge last told of a push. It asks for a look at the
// repository, each time its value changes.
const DeliveredAtAnnotation = "coppice.dev/delivered-at"

// Inventory lists objects.
type Inventory struct {
	// Entries are sorted by id.
	//
	// +required
	// +listType=atomic
	Entries []InventoryEntry `json:"entries"`
}

// InventoryEntry is one object.
type InventoryEntry struct {
	// ID is namespace_name_group_kind, the namespace empty for cluster-scoped objects.
	//
	// +required
	ID string `json:"id"`
	// Version is the API version of the object's kind.
	//
	// +required
	Version string `json:"v"`
	// Digest identifies what Git held when the object was last applied: the first 16
	// hexadecimal digits of a SHA-256. An object whose digest is unchanged isn't
	// applied again in drift mode warn, so that an unrelated commit doesn't undo a
	// change by hand.
	//
	// +optional
	Digest string `json:"digest,omitempty"`
}

// DriftSummary sums up how the cluster differs from what was applied.
type DriftSummary struct {
	// Objects that differ.
	//
	// +required
	Objects int32 `json:"objects"`
	// Fields that differ, over all objects.
	//
	// +required
	Fields int32 `json:"fields"`
	// Items are the first of them, sorted by object and field.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Items []DriftItem `json:"items,omitempty"`
	// ReportCommit is the commit that holds the full report.
	//
	// +optional
	ReportCommit string `json:"reportCommit,omitempty"`
	// PullRequest is the address of the one that would make Git say what is live.
	//
	// +optional
	PullRequest string `json:"pullRequest,omitempty"`
}

// DriftItem is one field that differs.
type DriftItem struct {
	// Object is the kind and name, as in NodePool/general.
	//
	// +required
	Object string `json:"object"`
	// Field is the path inside the object, as in spec.limits.cpu. It is empty when
	// the object as a whole is missing.
	//
	// +optional
	Field string `json:"field,omitempty"`
	// Git is the declared value as JSON.
	//
	// +optional
	Git string `json:"git,omitempty"`
	// Live is the cluster's value as JSON, left out when there is none.
	//
	// +optional
	Live string `json:"live,omitempty"`
	// Manager is the field manager that wrote the live value.
	//
	// +optional
	Manager string `json:"manager,omitempty"`
}

// HistoryEntry is what became of one revision.
type HistoryEntry struct {
	// Revision is the commit, as in main@sha1:1b2c...
	//
	// +required
	Revision string `json:"revision"`
	// Outcome is Applied, Refused (the commit is invalid) or Failed (it could not be
	// applied).
	//
	// +required
	// +kubebuilder:validation:Enum=Applied;Refused;Failed
	Outcome Outcome `json:"outcome"`
	// Time is when the revision first had this outcome.
	//
	// +required
	Time metav1.Time `json:"time"`
	// Message says in one line what changed or what was wrong.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// Outcome is what became of a revision.
type Outcome string

// Outcomes.
const (
	OutcomeApplied Outcome = "Applied"
	OutcomeRefused Outcome = "Refused"
	OutcomeFailed  Outcome = "Failed"
)
