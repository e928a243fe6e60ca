// Package aws holds the API group karpenter.k8s.aws/v1: EC2NodeClass, which says
// how nodes are launched on EC2, and the labels that EC2's instances give nodes.
//
// The types are wire-compatible with Karpenter 1.14 and 1.15. Where those two
// differ, what either accepts is accepted: see KubeletConfiguration.
//
// The package holds data. It may not import a client, a controller library, the
// AWS SDK or anything that reaches out.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.k8s.aws
// +versionName=v1
package aws
