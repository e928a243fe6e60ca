// Package karpenter holds the API group karpenter.sh/v1: NodePool, which says
// what nodes a cluster may have, and NodeClaim, which stands for one node from
// before it is launched until after it is gone.
//
// The types are wire-compatible with Karpenter 1.14 and 1.15: every object that
// one of these serves is read and written without loss. The rules that the API
// server enforces stand as markers beside the fields; the CRDs and the CUE
// definitions are generated from them by "go generate ./schemas".
//
// The package holds data. It may not import a client, a controller library or
// anything that reaches out.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
// +versionName=v1
package karpenter
