package buffer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group.
const Group = "autoscaling.x-k8s.io"

// GroupVersion names the version of the group that this package holds.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1beta1"}

// AddToScheme makes s know the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &CapacityBuffer{}, &CapacityBufferList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
