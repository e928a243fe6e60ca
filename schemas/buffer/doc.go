// Package buffer holds the API group version autoscaling.x-k8s.io/v1beta1:
// CapacityBuffer, which the Kubernetes cluster autoscaler and Karpenter share.
//
// The package holds data. It may not import a client, a controller library or
// anything that reaches out.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.x-k8s.io
// +versionName=v1beta1
package buffer
