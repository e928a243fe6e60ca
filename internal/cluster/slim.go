package cluster

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Slim takes from an object that a cache is about to keep what no decision depends on:
// of a pod that is most of it. It changes the object and returns it, as a cache's
// transform does. What is cached is patched by its differences alone, so that nothing
// that is missing here is taken from the original.
func Slim(obj any) (any, error) {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		SlimPod(o)
		o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type != corev1.PodScheduled && c.Type != corev1.PodReady && c.Type != corev1.PodResizePending
		})
	case *corev1.Node:
		all := o.Annotations // a pool's template may put any on a Node, and take it away
		SlimNode(o)
		o.Annotations = all
	case *appsv1.DaemonSet:
		SlimDaemonSet(o)
	}
	return obj, nil
}

// SlimDaemonSet keeps what its pods will ask of a node.
func SlimDaemonSet(o *appsv1.DaemonSet) {
	o.ManagedFields, o.Annotations = nil, Steering(o.Annotations)
	o.Spec.Template.ManagedFields, o.Spec.Template.Annotations = nil, Steering(o.Spec.Template.Annotations)
	o.Spec.Template.Spec = slimSpec(o.Spec.Template.Spec)
}

// SlimPod keeps what decides where a pod may run, what room it takes, what its end costs
// and how it fares.
func SlimPod(o *corev1.Pod) {
	full := o.Spec
	o.ManagedFields, o.Annotations, o.Spec = nil, Steering(o.Annotations), slimSpec(full)
	o.Status = corev1.PodStatus{
		Phase: o.Status.Phase, Conditions: o.Status.Conditions, NominatedNodeName: o.Status.NominatedNodeName,
		StartTime: o.Status.StartTime, QOSClass: o.Status.QOSClass, Resources: o.Status.Resources,
		ContainerStatuses:     tellingStatuses(full.Containers, o.Status.ContainerStatuses),
		InitContainerStatuses: tellingStatuses(full.InitContainers, o.Status.InitContainerStatuses),
	}
}

// SlimNode leaves out above all the list of images.
func SlimNode(o *corev1.Node) {
	o.ManagedFields, o.Annotations = nil, Steering(o.Annotations)
	o.Spec = corev1.NodeSpec{ProviderID: o.Spec.ProviderID, Taints: o.Spec.Taints, Unschedulable: o.Spec.Unschedulable}
	o.Status = corev1.NodeStatus{
		Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable, Conditions: o.Status.Conditions, NodeInfo: o.Status.NodeInfo,
	}
}

// steers are the API groups whose annotations steer nodes, and the one annotation of
// Kubernetes that does.
var steers = [...]string{karpenter.Group, aws.Group, coppice.Group}

// AnnotationDeletionCost says which of its pods a ReplicaSet gives up first.
// https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost
const AnnotationDeletionCost = "controller.kubernetes.io/pod-deletion-cost"

// Steering returns the annotations that steer nodes, nil for none. Others are left out:
// people keep whole manifests in them, secrets included.
func Steering(all map[string]string) map[string]string {
	var out map[string]string
	for k, v := range all {
		if !steering(k) {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out
}

func steering(annotation string) bool {
	prefix, _, _ := strings.Cut(annotation, "/")
	for _, group := range steers {
		if prefix == group || strings.HasSuffix(prefix, "."+group) {
			return true
		}
	}
	return annotation == AnnotationDeletionCost
}

// slimSpec keeps what decides where a pod may run and what room it takes.
func slimSpec(p corev1.PodSpec) corev1.PodSpec {
	out := corev1.PodSpec{
		NodeName: p.NodeName, NodeSelector: p.NodeSelector, Affinity: p.Affinity, Tolerations: p.Tolerations,
		TopologySpreadConstraints: p.TopologySpreadConstraints, SchedulerName: p.SchedulerName, SchedulingGates: p.SchedulingGates,
		Priority: p.Priority, PriorityClassName: p.PriorityClassName, PreemptionPolicy: p.PreemptionPolicy,
		Overhead: p.Overhead, Resources: p.Resources, ResourceClaims: p.ResourceClaims, HostNetwork: p.HostNetwork,
		TerminationGracePeriodSeconds: p.TerminationGracePeriodSeconds, RestartPolicy: p.RestartPolicy, OS: p.OS,
		Containers: slimContainers(p.Containers), InitContainers: slimContainers(p.InitContainers),
	}
	for _, v := range p.Volumes {
		if v.PersistentVolumeClaim != nil {
			out.Volumes = append(out.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		}
		if v.Ephemeral != nil {
			kept := &corev1.EphemeralVolumeSource{}
			if t := v.Ephemeral.VolumeClaimTemplate; t != nil {
				kept.VolumeClaimTemplate = &corev1.PersistentVolumeClaimTemplate{Spec: t.Spec}
			}
			out.Volumes = append(out.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: kept}})
		}
	}
	return out
}

func slimContainers(all []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range all {
		kept := corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				kept.Ports = append(kept.Ports, p)
			}
		}
		out = append(out, kept)
	}
	return out
}

// tellingStatuses keeps of the containers' statuses how often a container was started
// again and for what it waits but its start, and what a resize in place has made of its
// requests where that isn't what the spec says.
func tellingStatuses(spec []corev1.Container, statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range statuses {
		kept := corev1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount}
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			kept.State.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason}
		}
		for i := range spec {
			if s.Resources != nil && spec[i].Name == s.Name && !equality.Semantic.DeepEqual(spec[i].Resources, *s.Resources) {
				kept.Resources = s.Resources
			}
		}
		if kept.RestartCount > 0 || kept.Resources != nil || kept.State.Waiting != nil {
			out = append(out, kept)
		}
	}
	return out
}
