package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Provisionable reports whether the pod waits for a node that somebody should
// create: the scheduler has said that it fits nowhere, nobody has nominated it,
// and it isn't tied to nodes that come and go by themselves.
func Provisionable(p *corev1.Pod) bool {
	return p.Status.NominatedNodeName == "" && unplaced(p)
}

// unplaced reports whether the scheduler has found no place for the pod, whether or
// not somebody has nominated one since.
func unplaced(p *corev1.Pod) bool {
	return saidUnschedulable(p) && waiting(p)
}

// waiting reports whether the pod has no Node and isn't tied to one that comes and goes by
// itself.
func waiting(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" &&
		p.DeletionTimestamp == nil &&
		!Terminal(p) &&
		!OwnedByDaemonSet(p) &&
		!static(p)
}

// saidUnschedulable reports whether a scheduler has tried the pod in vain. Its
// name is not compared: what matters is the condition that it left.
func saidUnschedulable(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// Terminal reports whether the pod's containers have ended for good.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// OwnedByDaemonSet reports whether a DaemonSet controls the pod.
func OwnedByDaemonSet(p *corev1.Pod) bool { return ownedBy(p, "apps/v1", "DaemonSet") }

// static reports whether the pod is the mirror of a kubelet's own manifest.
func static(p *corev1.Pod) bool { return ownedBy(p, "v1", "Node") }

func ownedBy(p *corev1.Pod, apiVersion, kind string) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	return ref != nil && ref.APIVersion == apiVersion && ref.Kind == kind
}

// Reschedulable reports whether the pod will want another node when its own goes
// away. A terminating StatefulSet pod counts, since its successor takes its name.
func Reschedulable(p *corev1.Pod) bool {
	if Terminal(p) || OwnedByDaemonSet(p) || static(p) {
		return false
	}
	return p.DeletionTimestamp == nil || ownedBy(p, "apps/v1", "StatefulSet")
}

// Drainable reports whether a drain waits for the pod to leave. Mirror pods can't
// be evicted and pods that tolerate the disrupted taint have asked to stay.
func Drainable(p *corev1.Pod) bool {
	return !Terminal(p) && !static(p) && !toleratesDisruption(p)
}

func toleratesDisruption(p *corev1.Pod) bool {
	for _, t := range p.Spec.Tolerations {
		if t.Effect != "" && t.Effect != corev1.TaintEffectNoSchedule {
			continue
		}
		if t.Key == karpenter.TaintDisrupted || (t.Key == "" && t.Operator == corev1.TolerationOpExists) {
			return true
		}
	}
	return false
}

// DoNotDisrupt reports whether the pod forbids voluntary disruption of its node
// at time now. The annotation holds "true", or how long after the pod's start the
// protection lasts; a value that is neither protects nothing.
func DoNotDisrupt(p *corev1.Pod, now time.Time) bool {
	v, ok := p.Annotations[karpenter.AnnotationDoNotDisrupt]
	if !ok || Terminal(p) {
		return false
	}
	if v == "true" {
		return true
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return false
	}
	return p.Status.StartTime == nil || now.Before(p.Status.StartTime.Add(d))
}
