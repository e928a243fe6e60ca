package aws

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group, and the domain of the labels and annotations that
// belong to it.
const Group = "karpenter.k8s.aws"

// GroupVersion names the version of the group that this package holds.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1"}

// AddToScheme makes s know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &EC2NodeClass{}, &EC2NodeClassList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
