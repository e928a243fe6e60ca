package coppice

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PullRequests says how to speak in the pull requests that are to be merged into the
// branch that a source reads: what each would do to this cluster, and what became of it.
type PullRequests struct {
	// URL of the repository, over HTTPS, where spec.url isn't one: because a source of
	// Flux is read, or because it is read over SSH.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^/@\s]+(/\S*)?$`
	URL string `json:"url,omitempty"`
	// Branch that pull requests are to be merged into. By default that is spec.ref.branch.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Branch string `json:"branch,omitempty"`
	// Forge is what serves the repository. It needs to be said unless the host is
	// github.com, gitlab.com, bitbucket.org, codeberg.org or gitea.com.
	//
	// +optional
	// +kubebuilder:validation:Enum=github;gitlab;gitea;forgejo;bitbucket
	Forge string `json:"forge,omitempty"`
	// API is the root of the forge's API where it isn't in its usual place.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^/@\s]+(/\S*)?$`
	API string `json:"api,omitempty"`
	// SecretRef names a Secret in the same namespace with the right to read pull
	// requests, to comment in them and to set commit statuses: token, and username
	// beside it if it is a password; or githubAppID, githubAppPrivateKey and, if wanted,
	// githubAppInstallationID. ca.crt is trusted beside the system's certificates.
	//
	// +required
	SecretRef SecretReference `json:"secretRef"`
	// Interval is how often to look for new heads.
	//
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	Interval metav1.Duration `json:"interval,omitzero"`
	// Labels are those of which a pull request must have one to be spoken in. Without
	// any, all are.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=255
	Labels []string `json:"labels,omitempty"`
	// Forks says what to do about pull requests of other repositories: check them
	// without telling anything of the cluster (static), or nothing (ignore).
	//
	// +optional
	// +kubebuilder:default=static
	// +kubebuilder:validation:Enum=static;ignore
	Forks ForkMode `json:"forks,omitempty"`
}

// ForkMode says what to do about pull requests of forks.
type ForkMode string

// Fork modes.
const (
	// ForksStatic checks them without the cluster.
	ForksStatic ForkMode = "static"
	// ForksIgnore leaves them alone.
	ForksIgnore ForkMode = "ignore"
)
