package cluster

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Surroundings are the objects that a pod's meaning depends on besides itself.
type Surroundings interface {
	// Namespaces lists, sorted, the namespaces whose labels match.
	Namespaces(labels.Selector) []string
	PersistentVolumeClaim(types.NamespacedName) *corev1.PersistentVolumeClaim
	PersistentVolume(name string) *corev1.PersistentVolume
	// StorageClass returns the class of a name, or the default one for "".
	StorageClass(name string) *storagev1.StorageClass
	// First returns which of several pods that use a claim comes first, see State.first,
	// nil if there aren't several. With leaving, pods on their way out count too.
	First(claim types.NamespacedName, leaving bool) *corev1.Pod
}

// annSelectedNode names, on an unbound claim, the node that its volume is made for.
const annSelectedNode = "volume.kubernetes.io/selected-node"

// dependent reports whether a pod's meaning depends on its surroundings.
func dependent(p *corev1.Pod) bool {
	return hasNamespaceSelector(p) || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// VolumeClaims names the PersistentVolumeClaims of the pod's volumes, which are in its
// namespace.
func VolumeClaims(p *corev1.Pod) []string {
	var out []string
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, ephemeralClaim(p, v))
		}
	}
	return out
}

// ephemeralClaim is how the ephemeral volume controller names a volume's claim.
func ephemeralClaim(p *corev1.Pod, v corev1.Volume) string { return p.Name + "-" + v.Name }

// volumes translates the pod's volumes that bound where it may run: those that are
// claimed. One that can't be bound wherever the pod goes is an error. Beside are the
// pods that the pod has to share a node with, since a volume can be attached to one.
func volumes(p *corev1.Pod, around Surroundings) (out []pack.Volume, beside []pack.Selector, err error) {
	for _, v := range p.Spec.Volumes {
		var name string
		var template *corev1.PersistentVolumeClaimSpec
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
			name = ephemeralClaim(p, v)
			template = &v.Ephemeral.VolumeClaimTemplate.Spec
		default:
			continue
		}
		k := types.NamespacedName{Namespace: p.Namespace, Name: name}
		volume, err := claimed(k, template, around)
		if err != nil {
			return nil, nil, err
		}
		first, err := carrier(p, k, volume, around)
		if err != nil {
			return nil, nil, err
		}
		if first != nil {
			beside = append(beside, pack.Selector{Requirements: []pack.Requirement{{Key: carrierLabel(name), Operator: pack.Exists}}})
			if p.Spec.NodeName == "" || p.Spec.NodeName == first.Spec.NodeName {
				volume.Driver = "" // it's attached once, which is counted for the first
			}
		}
		out = append(out, volume)
	}
	slices.SortFunc(out, func(a, b pack.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return out, beside, nil
}

func claimed(k types.NamespacedName, template *corev1.PersistentVolumeClaimSpec, around Surroundings) (pack.Volume, error) {
	out := pack.Volume{Name: k.String()}
	spec := template
	switch claim := around.PersistentVolumeClaim(k); {
	case claim == nil && template == nil:
		return out, fmt.Errorf("PersistentVolumeClaim %s doesn't exist; create it", k)
	case claim == nil: // the ephemeral volume's claim is still to come
	case claim.DeletionTimestamp != nil:
		return out, fmt.Errorf("PersistentVolumeClaim %s is being deleted", k)
	case claim.Status.Phase == corev1.ClaimLost:
		return out, fmt.Errorf("PersistentVolumeClaim %s has lost its volume; restore the volume or recreate the claim", k)
	case claim.Spec.VolumeName != "":
		return bound(claim.Spec.VolumeName, around)
	default:
		spec = &claim.Spec
	}
	name := ""
	if spec.StorageClassName != nil {
		if name = *spec.StorageClassName; name == "" {
			return out, fmt.Errorf("PersistentVolumeClaim %s is unbound and asks for no storage class; bind it to a volume", k)
		}
	}
	class := around.StorageClass(name)
	switch {
	case class == nil && name == "":
		return out, fmt.Errorf("PersistentVolumeClaim %s names no storage class and there is no default one", k)
	case class == nil:
		return out, fmt.Errorf("PersistentVolumeClaim %s: StorageClass %q doesn't exist", k, name)
	case class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate:
		return out, fmt.Errorf("PersistentVolumeClaim %s isn't bound yet, and its storage class binds without waiting for a pod", k)
	}
	out.Driver = driver(class.Provisioner)
	if claim := around.PersistentVolumeClaim(k); claim != nil {
		// The volume is being made for a node; the scheduler waits for it there.
		if node := claim.Annotations[annSelectedNode]; node != "" {
			out.Terms = [][]pack.Requirement{{{Key: metav1.ObjectNameField, Operator: pack.In, Values: []string{node}}}}
			return out, nil
		}
	}
	for _, t := range class.AllowedTopologies {
		var reqs []pack.Requirement
		for _, e := range t.MatchLabelExpressions {
			reqs = append(reqs, pack.Requirement{Key: volumeLabel(e.Key), Operator: pack.In, Values: e.Values})
		}
		out.Terms = append(out.Terms, reqs)
	}
	return out, nil
}

func bound(name string, around Surroundings) (pack.Volume, error) {
	out := pack.Volume{Name: name}
	pv := around.PersistentVolume(name)
	if pv == nil {
		return out, fmt.Errorf("PersistentVolume %q doesn't exist", name)
	}
	if pv.Spec.CSI != nil {
		out.Driver = pv.Spec.CSI.Driver
	}
	if pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
		out.Terms = [][]pack.Requirement{}
		for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
			reqs := term(t)
			for i := range reqs {
				reqs[i].Key = volumeLabel(reqs[i].Key)
			}
			out.Terms = append(out.Terms, reqs)
		}
	}
	return out, nil
}

// driver names the CSI driver that serves a provisioner: itself, but for the
// in-tree one that Kubernetes forwards.
func driver(provisioner string) string {
	if provisioner == "kubernetes.io/aws-ebs" {
		return "ebs.csi.aws.com"
	}
	return provisioner
}

// volumeLabel gives a topology key of a CSI driver the name under which nodes carry
// it before the driver has registered on them.
func volumeLabel(key string) string {
	if key == "topology.ebs.csi.aws.com/zone" {
		return corev1.LabelTopologyZone
	}
	return karpenter.NormalizedLabel(key)
}

// around looks things up in a state that the caller has locked.
type around struct{ s *State }

func (a around) Namespaces(sel labels.Selector) []string {
	var out []string
	for name, n := range a.s.namespaces {
		if sel.Matches(labels.Set(n)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (a around) PersistentVolumeClaim(k types.NamespacedName) *corev1.PersistentVolumeClaim {
	return a.s.volumeClaims[k]
}

func (a around) First(claim types.NamespacedName, leaving bool) *corev1.Pod {
	return a.s.first(claim, leaving)
}

func (a around) PersistentVolume(name string) *corev1.PersistentVolume { return a.s.volumes[name] }

func (a around) StorageClass(name string) *storagev1.StorageClass {
	if name != "" {
		return a.s.storageClasses[name]
	}
	var newest *storagev1.StorageClass
	for _, c := range a.s.storageClasses {
		if c.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		// Of several defaults the API server takes the newest, then the first by name.
		if newest == nil || comesFirst(c.ObjectMeta, newest.ObjectMeta) {
			newest = c
		}
	}
	return newest
}

func comesFirst(a, b metav1.ObjectMeta) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}
