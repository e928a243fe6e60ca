package snapshot

import (
	"net/url"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// strip reduces every object to what decisions about nodes depend on.
func (s *Snapshot) strip() {
	each(s.NodePools, func(o *karpenter.NodePool) {
		meta(&o.ObjectMeta)
		o.Spec.Template.Annotations = cluster.Steering(o.Spec.Template.Annotations)
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
	each(s.Nodes, cluster.SlimNode)
	each(s.Pods, cluster.SlimPod)
	each(s.DaemonSets, cluster.SlimDaemonSet)
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
	m.Annotations = cluster.Steering(m.Annotations)
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
