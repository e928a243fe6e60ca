package coppice

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeSource says where in Git the nodes of this cluster are declared, and how
// to keep cluster and Git in step.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodesources,scope=Namespaced,categories=coppice,shortName=nsrc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message"
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".status.lastAppliedRevision"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="URL",type="string",JSONPath=".spec.url",priority=1
// +kubebuilder:printcolumn:name="Drift",type="integer",JSONPath=".status.drift.fields",priority=1
type NodeSource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodeSourceSpec `json:"spec"`
	// +optional
	Status NodeSourceStatus `json:"status,omitempty"`
}

// NodeSourceSpec is what an operator asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.sourceRef)",message="give either 'url' or 'sourceRef'"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || !(has(self.ref) || has(self.secretRef) || has(self.verify))",message="'ref', 'secretRef' and 'verify' belong to the object that 'sourceRef' names"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || !has(self.webhook) || has(self.pullRequests)",message="'webhook' belongs to the object that 'sourceRef' names, unless it tells of 'pullRequests'"
// +kubebuilder:validation:XValidation:rule="!has(self.proxySecretRef) || has(self.url) && self.url.startsWith('http')",message="'proxySecretRef' is for a 'url' over HTTP or HTTPS"
// +kubebuilder:validation:XValidation:rule="!has(self.sourceRef) || !has(self.writeBack)",message="'writeBack' needs a repository: give 'url' instead of 'sourceRef'"
// +kubebuilder:validation:XValidation:rule="!has(self.writeBack) || !has(self.ref) || !has(self.ref.branch) || self.writeBack.branch != self.ref.branch",message="writeBack.branch must be another branch than the one that is read"
// +kubebuilder:validation:XValidation:rule="!has(self.writeBack) || !has(self.ref) || !has(self.ref.name) || 'refs/heads/' + self.writeBack.branch != self.ref.name",message="writeBack.branch must be another branch than the one that is read"
// +kubebuilder:validation:XValidation:rule="!has(self.pullRequests) || has(self.pullRequests.url) || has(self.url) && self.url.startsWith('http')",message="'pullRequests' needs the repository's address over HTTPS: give pullRequests.url"
// +kubebuilder:validation:XValidation:rule="!has(self.pullRequests) || has(self.pullRequests.branch) || has(self.ref) && has(self.ref.branch)",message="'pullRequests' needs a branch that they are to be merged into: give ref.branch or pullRequests.branch"
// +kubebuilder:validation:XValidation:rule="!has(self.writeBack) || !has(self.writeBack.adopt) || has(self.pullRequests)",message="writeBack.adopt opens pull requests as 'pullRequests' says: give it too"
// +kubebuilder:validation:XValidation:rule="!has(self.writeBack) || !has(self.writeBack.adopt) || self.writeBack.adopt.branch != self.writeBack.branch && !self.writeBack.branch.startsWith(self.writeBack.adopt.branch + '/') && !self.writeBack.adopt.branch.startsWith(self.writeBack.branch + '/')",message="writeBack.adopt.branch and writeBack.branch can't be one, or one below the other"
type NodeSourceSpec struct {
	// URL of the repository, without credentials in it: http, https, or ssh with the
	// server's user, as in ssh://git@example.com/fleet.git.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https?://[^/@\s]+(/\S*)?|ssh://([^/@:\s]+@)?[^/@\s]+/\S+)$`
	URL string `json:"url,omitempty"`
	// SourceRef names an object of Flux in the same namespace whose artifact is taken
	// instead of a repository.
	//
	// +optional
	SourceRef *ArtifactReference `json:"sourceRef,omitempty"`
	// Ref says which commit to take. Without it, the repository's default branch is
	// followed.
	//
	// +optional
	Ref *GitReference `json:"ref,omitempty"`
	// Path of the CUE tree inside the repository, with forward slashes. Empty means
	// the repository's root.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(s, s == '..')",message="path must be relative and stay inside the repository"
	Path string `json:"path,omitempty"`
	// Cluster is the name of the folder under clusters/ to apply. It may be left out
	// when the tree declares one cluster alone.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
	// Interval is how often to look for a new commit and for drift.
	//
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Interval metav1.Duration `json:"interval,omitzero"`
	// Timeout bounds one fetch, one evaluation and one apply, each.
	//
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// SecretRef names a Secret in the same namespace with what reading takes, under
	// Flux's names: username and password, bearerToken, or githubAppID and its kin;
	// tls.crt, tls.key and ca.crt; identity, password and known_hosts for SSH.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
	// ProxySecretRef names a Secret in the same namespace with the proxy that the
	// repository is reached through: its URL as address (http, https or socks5), and
	// username and password if it wants them. It takes the place of HTTPS_PROXY and its kin.
	//
	// +optional
	ProxySecretRef *SecretReference `json:"proxySecretRef,omitempty"`
	// Verify wants commits or tags to be signed. What isn't is not taken.
	//
	// +optional
	Verify *Verification `json:"verify,omitempty"`
	// HistoryRewrite says what to do about a commit that doesn't descend from the one
	// that is applied, as after a forced push: wait until the annotation
	// coppice.dev/accept-rewrite names the commit (hold), or take it and tell (follow).
	//
	// +optional
	// +kubebuilder:default=hold
	// +kubebuilder:validation:Enum=hold;follow
	HistoryRewrite HistoryRewrite `json:"historyRewrite,omitempty"`
	// Webhook lets the forge tell of a push or a pull request, so that nobody waits for the
	// interval.
	//
	// +optional
	Webhook *Webhook `json:"webhook,omitempty"`
	// Suspend stops fetching, applying and reporting. What is live stays as it is.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Prune deletes objects that an earlier commit declared and the present one
	// doesn't.
	//
	// +optional
	// +kubebuilder:default=true
	Prune *bool `json:"prune,omitempty"`
	// MaxDeletes is how many objects one commit may delete. A commit that would
	// delete more is refused as a whole, until the number is raised.
	//
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	MaxDeletes *int32 `json:"maxDeletes,omitempty"`
	// MaxDeletedNodes is how many nodes the deletions of one commit may take, as a
	// number or a share of the cluster's NodeClaims, rounded down. A commit that takes
	// more waits until its deletions are confirmed in Git, by the field deletes of
	// coppice.cue. With 0, the default, every pool that has nodes waits.
	//
	// +optional
	// +kubebuilder:default="0"
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	MaxDeletedNodes string `json:"maxDeletedNodes,omitempty"`
	// Conflicts say who wins fields that somebody else has written; the first rule that
	// matches counts. A field without one is Git's.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Conflicts []ConflictRule `json:"conflicts,omitempty"`
	// DependsOn names sources that must be Ready before this one is applied.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	DependsOn []SourceReference `json:"dependsOn,omitempty"`
	// ServiceAccountName names a ServiceAccount in the same namespace as which objects
	// are applied and deleted. Without it that is done as the controller's own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// Wait makes the source Ready only once the objects that it applied are Ready and
	// no node of its pools is still to be replaced.
	//
	// +optional
	Wait bool `json:"wait,omitempty"`
	// DriftMode says what to do about a field that was changed by hand: report it
	// (warn), put Git's value back and report it (correct), or nothing (off).
	//
	// +optional
	// +kubebuilder:default=warn
	// +kubebuilder:validation:Enum=warn;correct;off
	DriftMode DriftMode `json:"driftMode,omitempty"`
	// WriteBack says where reports are committed. Without it they are in the status
	// alone.
	//
	// +optional
	WriteBack *WriteBack `json:"writeBack,omitempty"`
	// PullRequests says how to speak in pull requests. Without it nothing is said.
	//
	// +optional
	PullRequests *PullRequests `json:"pullRequests,omitempty"`
}

// GitReference says which commit to take. Of several fields, the first in the
// order commit, name, semver, tag, branch counts.
//
// +kubebuilder:validation:XValidation:rule="has(self.branch) || has(self.tag) || has(self.semver) || has(self.name) || has(self.commit)",message="ref needs 'branch', 'tag', 'semver', 'name' or 'commit'"
type GitReference struct {
	// Branch to follow.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`
	// Tag to take.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Tag string `json:"tag,omitempty"`
	// SemVer is a range of versions, as in ">=1.2.0 <2.0.0": the tag that names the
	// highest version in it is taken.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	SemVer string `json:"semver,omitempty"`
	// Name is a full reference name, as in refs/pull/12/head.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^refs/\S+$`
	Name string `json:"name,omitempty"`
	// Commit is the full hash of a commit.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{40}|[0-9a-f]{64})$`
	Commit string `json:"commit,omitempty"`
}

// SecretReference names a Secret in the same namespace.
type SecretReference struct {
	// Name of the Secret.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// DriftMode says what to do about a field that was changed by hand.
type DriftMode string

// Drift modes.
const (
	// DriftWarn reports and leaves the live value alone.
	DriftWarn DriftMode = "warn"
	// DriftCorrect puts Git's value back and reports that it did.
	DriftCorrect DriftMode = "correct"
	// DriftOff doesn't look.
	DriftOff DriftMode = "off"
)

// WriteBack says where reports are committed.
type WriteBack struct {
	// Branch to commit to. It is created if it isn't there, and is never the branch
	// that is read.
	//
	// +optional
	// +kubebuilder:default="coppice/drift"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`
	// Path is the folder inside the branch that reports are written to.
	//
	// +optional
	// +kubebuilder:default=drift
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(s, s == '..')",message="path must be relative and stay inside the repository"
	Path string `json:"path,omitempty"`
	// Author of the commits.
	//
	// +optional
	// +kubebuilder:default={name: "Coppice", email: "coppice@localhost"}
	Author CommitAuthor `json:"author,omitzero"`
	// SecretRef names a Secret in the same namespace, as spec.secretRef does, with
	// what pushing takes. Without it, spec.secretRef is used.
	//
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
	// SigningKeyRef names a Secret in the same namespace with the key that signs
	// commits: an armoured OpenPGP key as git.asc with its passphrase as passphrase, or
	// an SSH key as identity with its passphrase as password.
	//
	// +optional
	SigningKeyRef *SecretReference `json:"signingKeyRef,omitempty"`
	// Message is a Go template of the commit message with the fields Cluster, Source,
	// Revision, Summary, Objects, Fields and Details. Trailers that name cluster,
	// source and revision follow it always.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// SkipCI adds [skip ci] to the commit message's first line.
	//
	// +optional
	SkipCI bool `json:"skipCI,omitempty"`
	// Adopt keeps one pull request open, as long as there is config drift, that edits the
	// CUE at the very values that differ so that Git says what is live. Merging it adopts
	// the change; what is closed or reverted isn't proposed again. Forge, address, branch
	// and the token that opens it are those of spec.pullRequests.
	//
	// +optional
	Adopt *Adoption `json:"adopt,omitempty"`
}

// Adoption says how to propose what is live.
type Adoption struct {
	// Branch is what the names of branches begin with that hold the edits; the names of
	// the cluster and the source follow. It is pushed to as reports are, and is nobody
	// else's: what we pushed there is replaced. A commit of somebody else on it is left
	// alone.
	//
	// +optional
	// +kubebuilder:default="coppice/adopt"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	Branch string `json:"branch,omitempty"`
}

// CommitAuthor signs commits by name.
type CommitAuthor struct {
	// Name of the author.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Name string `json:"name"`
	// Email of the author.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Email string `json:"email"`
}

// NodeSourceList is a page of NodeSources.
//
// +kubebuilder:object:root=true
type NodeSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeSource `json:"items"`
}

// GetConditions returns the conditions as they stand in the object.
func (s *NodeSource) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions.
func (s *NodeSource) SetConditions(l []metav1.Condition) { s.Status.Conditions = l }

// Prunes reports whether objects that Git no longer declares are deleted.
func (s *NodeSource) Prunes() bool { return s.Spec.Prune == nil || *s.Spec.Prune }

// Deletions is how many objects one commit may delete without a confirmation.
func (s *NodeSource) Deletions() int {
	if s.Spec.MaxDeletes == nil {
		return defaultMaxDeletes
	}
	return int(*s.Spec.MaxDeletes)
}

// defaultMaxDeletes is what the CRD fills in for maxDeletes.
const defaultMaxDeletes = 3
