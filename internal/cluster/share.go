package cluster

import (
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sharedMost bounds what a sharer remembers; it begins anew beyond that.
const sharedMost = 20_000

// sharer lets pods of one owner, which are alike, share what is alike in them. Objects in
// a cache are never changed, so that two may hold the same map. The zero value is ready.
type sharer struct {
	mu sync.Mutex
	// owners have, by UID, the last of their pods; its fields are what others share.
	owners  map[types.UID]*corev1.Pod
	strings map[string]string
}

// NewSlim returns a transform for a cache: Slim, and pods of one owner share what is
// alike. Half of a pod's memory is spared.
func NewSlim() func(any) (any, error) {
	s := &sharer{}
	return func(obj any) (any, error) {
		obj, err := Slim(obj)
		if p, ok := obj.(*corev1.Pod); ok && err == nil {
			s.share(p)
		}
		return obj, err
	}
}

// share replaces parts of the pod by equal parts of others.
func (s *sharer) share(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners == nil || len(s.owners) > sharedMost {
		s.owners = map[types.UID]*corev1.Pod{}
	}
	// There is one for each Node's name: in a large cluster these end sooner, and the
	// pods of an owner should be alike for as long as they can.
	if s.strings == nil || len(s.strings) > sharedMost {
		s.strings = map[string]string{}
	}
	p.GenerateName = ""
	p.Namespace, p.Spec.NodeName, p.Spec.SchedulerName = s.string(p.Namespace), s.string(p.Spec.NodeName), s.string(p.Spec.SchedulerName)
	p.Spec.PriorityClassName, p.Spec.RestartPolicy = s.string(p.Spec.PriorityClassName), corev1.RestartPolicy(s.string(string(p.Spec.RestartPolicy)))
	p.Status.Phase, p.Status.QOSClass = corev1.PodPhase(s.string(string(p.Status.Phase))), corev1.PodQOSClass(s.string(string(p.Status.QOSClass)))
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.Type, c.Status, c.Reason = corev1.PodConditionType(s.string(string(c.Type))), corev1.ConditionStatus(s.string(string(c.Status))), s.string(c.Reason)
	}
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return
	}
	other := s.owners[owner.UID]
	if other == nil {
		other = &corev1.Pod{}
		s.owners[owner.UID] = other
	}
	if maps.Equal(p.Labels, other.Labels) {
		p.Labels = other.Labels
	}
	other.Labels = p.Labels
	equal(&p.OwnerReferences, &other.OwnerReferences)
	a, b := &p.Spec, &other.Spec
	equal(&a.Containers, &b.Containers)
	equal(&a.InitContainers, &b.InitContainers)
	equal(&a.Volumes, &b.Volumes)
	equal(&a.NodeSelector, &b.NodeSelector)
	equal(&a.Affinity, &b.Affinity)
	equal(&a.Tolerations, &b.Tolerations)
	equal(&a.TopologySpreadConstraints, &b.TopologySpreadConstraints)
	equal(&a.Priority, &b.Priority)
	equal(&a.PreemptionPolicy, &b.PreemptionPolicy)
	equal(&a.TerminationGracePeriodSeconds, &b.TerminationGracePeriodSeconds)
	equal(&a.Overhead, &b.Overhead)
	equal(&a.Resources, &b.Resources)
}

// equal makes one of two equal values the other, and keeps the first for the next
// comparison if they aren't.
func equal[T any](p, other *T) {
	if reflect.DeepEqual(*p, *other) {
		*p = *other
	} else {
		*other = *p
	}
}

// string returns an equal string that others hold too.
func (s *sharer) string(text string) string {
	if text == "" {
		return ""
	}
	if have, ok := s.strings[text]; ok {
		return have
	}
	s.strings[text] = text
	return text
}
