package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/pack"
)

// translations spares the pods of one owner, which share what is alike in them (see
// NewSlim), to be translated each by itself: they share the result as well, which the
// core takes for one shape without looking at it. The zero value is ready.
type translations struct {
	// last has, by the owner's UID, the last of its pods that was translated.
	last map[types.UID]translation
}

type translation struct {
	of   *corev1.Pod
	spec *pack.PodSpec
}

// podSpec is PodSpec, or what it said of a pod of which this one is the like.
func (t *translations) podSpec(p *corev1.Pod, around Surroundings) (*pack.PodSpec, error) {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil || dependent(p) || resized(p) {
		return PodSpec(p, around)
	}
	if last, ok := t.last[owner.UID]; ok && alike(last.of, p) {
		return last.spec, nil
	}
	spec, err := PodSpec(p, around)
	if err == nil {
		if t.last == nil || len(t.last) >= sharedMost {
			t.last = map[types.UID]translation{}
		}
		t.last[owner.UID] = translation{p, spec}
	}
	return spec, err
}

// resized reports whether a pod's status may say otherwise than its spec what it takes.
func resized(p *corev1.Pod) bool {
	s := &p.Status
	said := func(c corev1.ContainerStatus) bool { return c.Resources != nil || c.AllocatedResources != nil }
	return s.Resources != nil || s.AllocatedResources != nil ||
		slices.ContainsFunc(s.ContainerStatuses, said) || slices.ContainsFunc(s.InitContainerStatuses, said) ||
		slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
}

// alike reports whether two pods of one owner, neither of them dependent nor resized,
// translate to the same. It looks for parts that are shared: others may be equal, which
// costs as much to find out as to translate.
func alike(a, b *corev1.Pod) bool {
	x, y := &a.Spec, &b.Spec
	return same(x.Containers, y.Containers) && same(x.InitContainers, y.InitContainers) &&
		same(x.Tolerations, y.Tolerations) && same(x.TopologySpreadConstraints, y.TopologySpreadConstraints) &&
		x.Affinity == y.Affinity && x.Resources == y.Resources && maps.Equal(x.NodeSelector, y.NodeSelector) &&
		maps.EqualFunc(x.Overhead, y.Overhead, func(q, r resource.Quantity) bool { return q.Cmp(r) == 0 }) &&
		policyText(a) == policyText(b) &&
		// Constraints may take values from the pod's own labels.
		(x.Affinity == nil && len(x.TopologySpreadConstraints) == 0 || maps.Equal(a.Labels, b.Labels))
}

// policyText is the pod's own policy for its preferences as it is written, if it has one.
func policyText(p *corev1.Pod) (text struct {
	value string
	has   bool
}) {
	text.value, text.has = p.Annotations[AnnotationPreferencePolicy]
	return text
}

// same reports whether two slices are one.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
