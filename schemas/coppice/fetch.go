package coppice

// ArtifactReference names an object of Flux whose artifact is taken.
type ArtifactReference struct {
	// Kind of the object.
	//
	// +required
	// +kubebuilder:validation:Enum=GitRepository;OCIRepository
	Kind string `json:"kind"`
	// Name of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Verification says whose signatures count, and on what.
type Verification struct {
	// Mode says what must be signed: the commit (HEAD), the annotated tag that leads
	// to it (Tag), or both (TagAndHEAD).
	//
	// +optional
	// +kubebuilder:default=HEAD
	// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
	Mode string `json:"mode,omitempty"`
	// SecretRef names a Secret in the same namespace with public keys: OpenPGP keys
	// as NAME.asc, SSH keys as NAME.sshpub or authorized_keys.
	//
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// HistoryRewrite says what to do about rewritten history.
type HistoryRewrite string

// Answers to rewritten history.
const (
	// RewriteHold leaves what is live until somebody accepts the commit.
	RewriteHold HistoryRewrite = "hold"
	// RewriteFollow takes the commit and warns.
	RewriteFollow HistoryRewrite = "follow"
)

// AcceptRewriteAnnotation names, by its full hash, a commit that is taken although
// it doesn't descend from the one that is applied.
const AcceptRewriteAnnotation = "coppice.dev/accept-rewrite"

// Webhook says who may tell of a push, and how it proves that it is who it is.
type Webhook struct {
	// Type of the sender: github (X-Hub-Signature-256), gitlab (X-Gitlab-Token),
	// gitea, which Forgejo is too (X-Gitea-Signature), bitbucket (X-Hub-Signature), or
	// generic (X-Signature: sha256=HMAC).
	//
	// +required
	// +kubebuilder:validation:Enum=github;gitlab;gitea;bitbucket;generic
	Type string `json:"type"`
	// SecretRef names a Secret in the same namespace with the shared secret under the
	// key token.
	//
	// +required
	SecretRef SecretReference `json:"secretRef"`
}
