// Package coppice holds Coppice's own API group coppice.dev/v1alpha1: NodeSource,
// which says where in Git the nodes of a cluster are declared.
//
// The package holds data. It may not import a client, a controller library or
// anything that reaches out.
//
// +kubebuilder:object:generate=true
// +groupName=coppice.dev
// +versionName=v1alpha1
package coppice
