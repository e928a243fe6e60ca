package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// In a burst the scheduler takes many seconds to say of each of thousands of pods that it
// fits nowhere. What it says of one it will say of those of the same owner that it hasn't
// tried yet, unless there is room for some of them, which the plan knows as well: they are
// planned for together, and find their node open when it is their turn.

// siblings are the pods that one owner controls and that have no Node.
type siblings struct {
	// refused are those that the scheduler has tried in vain, untried those that it has
	// said nothing of.
	refused, untried map[types.NamespacedName]bool
}

func controllerUID(p *corev1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		return ref.UID
	}
	return ""
}

// untried reports whether the pod waits for the scheduler's first word.
func untried(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return false
		}
	}
	return waiting(p)
}

// unplaced reports whether the scheduler finds no place for the pod, or will find none,
// whether or not somebody has nominated one since.
func (s *State) unplaced(p *corev1.Pod) bool {
	if unplaced(p) {
		return true
	}
	f := s.siblings[controllerUID(p)]
	return f != nil && len(f.refused) > 0 && untried(p)
}

// provisionable is Provisionable, of pods too of which the scheduler will say so.
func (s *State) provisionable(p *corev1.Pod) bool {
	return (p.Status.NominatedNodeName == "" || s.lapsed(p)) && s.unplaced(p)
}

// meet counts a pod among its siblings.
func (s *State) meet(k types.NamespacedName, p *corev1.Pod) {
	if p.Spec.NodeName != "" {
		return
	}
	owner, refused := controllerUID(p), unplaced(p)
	if owner == "" || !refused && !untried(p) {
		return
	}
	f := s.siblings[owner]
	if f == nil {
		f = &siblings{refused: map[types.NamespacedName]bool{}, untried: map[types.NamespacedName]bool{}}
		s.siblings[owner] = f
	}
	if !refused {
		f.untried[k] = true
		return
	}
	if f.refused[k] = true; len(f.refused) == 1 {
		s.touchUntried(f)
	}
}

// part takes a pod from among its siblings.
func (s *State) part(k types.NamespacedName, p *corev1.Pod) {
	if p.Spec.NodeName != "" {
		return
	}
	owner := controllerUID(p)
	f := s.siblings[owner]
	if f == nil {
		return
	}
	if delete(f.untried, k); f.refused[k] {
		if delete(f.refused, k); len(f.refused) == 0 {
			s.touchUntried(f)
		}
	}
	if len(f.refused)+len(f.untried) == 0 {
		delete(s.siblings, owner)
	}
}

func (s *State) touchUntried(f *siblings) {
	for k := range f.untried {
		s.touchPod(k)
	}
}
