package snapshot

import (
	"maps"
	"net/url"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// ours are the API groups whose annotations steer nodes. Annotations of others are
// left out: people keep whole manifests in them, secrets included.
var ours = []string{karpenter.Group, aws.Group, coppice.Group}

// strip reduces every object to what decisions about nodes depend on.
func (s *Snapshot) strip() {
	each(s.NodePools, func(o *karpenter.NodePool) {
		meta(&o.ObjectMeta)
		o.Spec.Template.Annotations = steering(o.Spec.Template.Annotations)
	})
	each(s.NodeClaims, func(o *karpenter.NodeClaim) { meta(&o.ObjectMeta) })
	each(s.NodeSources, func(o *coppice.NodeSource) {
		meta(&o.ObjectMeta)
		o.Spec.URL = place(o.Spec.URL)
	})
	each(s.NodeClasses, func(o *aws.EC2NodeClass) {
		meta(&o.ObjectMeta)
		// User data often holds a join token.
		o.Spec.UserData = nil
	})
	each(s.Nodes, func(o *corev1.Node) {
		meta(&o.ObjectMeta)
		o.Spec = corev1.NodeSpec{ProviderID: o.Spec.ProviderID, Taints: o.Spec.Taints, Unschedulable: o.Spec.Unschedulable}
		o.Status = corev1.NodeStatus{
			Capacity: o.Status.Capacity, Allocatable: o.Status.Allocatable, Conditions: o.Status.Conditions, NodeInfo: o.Status.NodeInfo,
		}
	})
	each(s.Pods, func(o *corev1.Pod) {
		meta(&o.ObjectMeta)
		o.Spec = podSpec(o.Spec)
		o.Status = corev1.PodStatus{
			Phase: o.Status.Phase, Conditions: o.Status.Conditions, NominatedNodeName: o.Status.NominatedNodeName,
			StartTime: o.Status.StartTime, QOSClass: o.Status.QOSClass,
		}
	})
	each(s.DaemonSets, func(o *appsv1.DaemonSet) {
		meta(&o.ObjectMeta)
		meta(&o.Spec.Template.ObjectMeta)
		o.Spec.Template.Spec = podSpec(o.Spec.Template.Spec)
	})
	each(s.Namespaces, func(o *corev1.Namespace) { meta(&o.ObjectMeta) })
	for i := range s.Budgets {
		meta(&s.Budgets[i].ObjectMeta)
	}
	each(s.Claims, func(o *corev1.PersistentVolumeClaim) { meta(&o.ObjectMeta) })
	each(s.Volumes, func(o *corev1.PersistentVolume) {
		meta(&o.ObjectMeta)
		// What a volume is made of can hold addresses and credentials; of a CSI volume
		// the driver counts, for attach limits.
		var csi *corev1.CSIPersistentVolumeSource
		if o.Spec.CSI != nil {
			csi = &corev1.CSIPersistentVolumeSource{Driver: o.Spec.CSI.Driver, VolumeHandle: o.Spec.CSI.VolumeHandle}
		}
		o.Spec.MountOptions = nil
		o.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: csi}
	})
	each(s.Classes, func(o *storagev1.StorageClass) {
		meta(&o.ObjectMeta)
		o.Parameters, o.MountOptions = nil, nil
	})
	each(s.CSINodes, func(o *storagev1.CSINode) { meta(&o.ObjectMeta) })
	for i := range s.Events {
		meta(&s.Events[i].ObjectMeta)
	}
}

func each[T any](items []T, f func(*T)) {
	for i := range items {
		f(&items[i])
	}
}

func meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.Annotations = steering(m.Annotations)
}

// steering returns the annotations that steer nodes.
func steering(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(k, _ string) bool {
		for _, group := range ours {
			if prefix, _, _ := strings.Cut(k, "/"); prefix == group || strings.HasSuffix(prefix, "."+group) {
				return false
			}
		}
		return true
	})
	if len(out) == 0 {
		return nil
	}
	return out
}

// place returns an address without what may be a credential.
func place(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// podSpec keeps what decides where a pod may run and what room it takes.
func podSpec(p corev1.PodSpec) corev1.PodSpec {
	out := corev1.PodSpec{
		NodeName: p.NodeName, NodeSelector: p.NodeSelector, Affinity: p.Affinity, Tolerations: p.Tolerations,
		TopologySpreadConstraints: p.TopologySpreadConstraints, SchedulerName: p.SchedulerName, SchedulingGates: p.SchedulingGates,
		Priority: p.Priority, PriorityClassName: p.PriorityClassName, PreemptionPolicy: p.PreemptionPolicy,
		Overhead: p.Overhead, Resources: p.Resources, ResourceClaims: p.ResourceClaims, HostNetwork: p.HostNetwork,
		TerminationGracePeriodSeconds: p.TerminationGracePeriodSeconds, RestartPolicy: p.RestartPolicy, OS: p.OS,
	}
	for _, c := range p.Containers {
		out.Containers = append(out.Containers, container(c))
	}
	for _, c := range p.InitContainers {
		out.InitContainers = append(out.InitContainers, container(c))
	}
	for _, v := range p.Volumes {
		if v.PersistentVolumeClaim != nil {
			out.Volumes = append(out.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		}
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			template := &corev1.PersistentVolumeClaimTemplate{Spec: v.Ephemeral.VolumeClaimTemplate.Spec}
			out.Volumes = append(out.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}}})
		}
	}
	return out
}

func container(c corev1.Container) corev1.Container {
	out := corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	for _, p := range c.Ports {
		if p.HostPort != 0 {
			out.Ports = append(out.Ports, p)
		}
	}
	return out
}
