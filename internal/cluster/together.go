package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/pack"
)

// A volume of EBS with the access mode ReadWriteOnce is attached to one node at a time.
// kube-scheduler doesn't look at that: it binds pods that share one to any nodes, where
// all but the first node's wait for the volume in vain. Plans keep them together: of the
// pods that share a claim one comes first, and the others have to be beside it. Of a
// ReadWriteOncePod volume the scheduler lets one pod alone have a node.

// attachedOnce is the driver whose volumes are attached to one node at a time. Other
// drivers' may not be attached at all (EFS), whatever the claim's access mode says.
const attachedOnce = "ebs.csi.aws.com"

// oneNode reports whether a claim's access modes allow its use on one node alone.
func oneNode(modes []corev1.PersistentVolumeAccessMode) bool {
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m != corev1.ReadWriteOnce && m != corev1.ReadWriteOncePod
	})
}

// first returns which of the pods that use a claim comes first: one that has a Node, else
// one that is nominated to one, else any that may get one, by name. Pods that are being
// ended count among those with a Node if leaving says so. It returns nil if there aren't
// several.
func (s *State) first(claim types.NamespacedName, leaving bool) *corev1.Pod {
	if len(s.claimants[claim]) < 2 {
		return nil
	}
	rank := func(p *corev1.Pod) int {
		switch {
		case Terminal(p) || p.DeletionTimestamp != nil && (!leaving || p.Spec.NodeName == ""):
			return -1
		case p.Spec.NodeName != "":
			return 0
		case !waiting(p) || len(p.Spec.SchedulingGates) > 0 && !saidUnschedulable(p):
			return -1
		case p.Status.NominatedNodeName != "":
			return 1
		}
		return 2
	}
	var first *corev1.Pod
	least := -1
	for k := range s.claimants[claim] {
		p := s.pods[k]
		r := rank(p)
		if r >= 0 && (first == nil || cmp.Or(cmp.Compare(r, least), cmp.Compare(p.Name, first.Name)) < 0) {
			first, least = p, r
		}
	}
	return first
}

// carrier returns the pod that a pod has to be beside because of a volume that is
// claimed, nil if there is none.
func carrier(p *corev1.Pod, claim types.NamespacedName, v pack.Volume, around Surroundings) (*corev1.Pod, error) {
	c := around.PersistentVolumeClaim(claim)
	if c == nil || !oneNode(c.Spec.AccessModes) {
		return nil, nil
	}
	alone := slices.Contains(c.Spec.AccessModes, corev1.ReadWriteOncePod)
	first := around.First(claim, alone)
	switch {
	case first == nil || first.Name == p.Name:
		return nil, nil
	case alone && p.Spec.NodeName != "":
		return nil, nil
	case alone:
		return nil, fmt.Errorf("PersistentVolumeClaim %s is for one pod at a time (ReadWriteOncePod), which is %s now", claim, first.Name)
	case v.Driver != attachedOnce:
		return nil, nil
	}
	return first, nil
}

// carrierLabel marks, in the core alone, the pod that comes first of those that share a
// claim. No label's key has a space.
func carrierLabel(claim string) string { return "carries " + claim }

// carrierLabels returns a pod's labels, with those for the claims of which it comes first.
func (s *State) carrierLabels(p *corev1.Pod) map[string]string {
	out, own := p.Labels, true
	for _, name := range VolumeClaims(p) {
		if first := s.first(types.NamespacedName{Namespace: p.Namespace, Name: name}, false); first == nil || first.Name != p.Name {
			continue
		}
		if own {
			if out, own = maps.Clone(p.Labels), false; out == nil {
				out = map[string]string{}
			}
		}
		out[carrierLabel(name)] = ""
	}
	return out
}
