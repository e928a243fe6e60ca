// Package overlay holds the API group version karpenter.sh/v1alpha1: NodeOverlay,
// wire-compatible with Karpenter 1.14 and 1.15.
//
// The package holds data. It may not import a client, a controller library or
// anything that reaches out.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
// +versionName=v1alpha1
package overlay
