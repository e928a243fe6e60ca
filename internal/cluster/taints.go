package cluster

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Ephemeral reports whether a taint on a new node is known to go by itself: those
// of the node lifecycle controller and the cloud controller manager, our own
// unregistered taint, and whatever a readiness gate (readiness.k8s.io/) holds.
func Ephemeral(t corev1.Taint) bool {
	switch t.Key {
	case corev1.TaintNodeNotReady:
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	case corev1.TaintNodeUnreachable:
		return t.Effect == corev1.TaintEffectNoSchedule
	case "node.cloudprovider.kubernetes.io/uninitialized": // cloudprovider api.TaintExternalCloudProvider
		return t.Effect == corev1.TaintEffectNoSchedule
	case karpenter.TaintUnregistered:
		return true
	}
	return strings.HasPrefix(t.Key, "readiness.k8s.io/")
}
