package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// scope is what a pod's meaning depends on besides itself.
type scope uint8

const (
	scopeNamespaces scope = 1 << iota // labels of namespaces
	scopeClasses                      // storage classes
	scopeBudgets                      // PodDisruptionBudgets
)

// dirty names what has changed. Machines are named by machineKey.
type dirty struct {
	pods     map[types.NamespacedName]struct{}
	machines map[string]struct{}
	daemons  *bool
	// around says on what has changed pods' meaning may depend besides themselves. Volumes
	// and their claims aren't among it: those know their pods.
	around *scope
}

func newDirty() dirty {
	return dirty{pods: map[types.NamespacedName]struct{}{}, machines: map[string]struct{}{}, daemons: new(bool), around: new(scope)}
}

// news returns what has changed since m last asked; everything, the first time.
func (s *State) news(m *Model) dirty {
	d, ok := s.dirty[m]
	s.dirty[m] = newDirty()
	if ok {
		return d
	}
	d = newDirty()
	for k := range s.pods {
		d.pods[k] = struct{}{}
	}
	for name := range s.nodes {
		d.machines[nodeKey(name)] = struct{}{}
	}
	for name := range s.claims {
		d.machines[claimKey(name)] = struct{}{}
	}
	*d.daemons = true
	return d
}

func (s *State) touchPod(k types.NamespacedName) {
	for _, d := range s.dirty {
		d.pods[k] = struct{}{}
	}
}

func (s *State) touchMachine(k string) {
	for _, d := range s.dirty {
		d.machines[k] = struct{}{}
	}
}

func (s *State) touchAround(what scope) {
	for _, d := range s.dirty {
		*d.around |= what
	}
}

// touchVolumeClaim marks the pods that use a PersistentVolumeClaim.
func (s *State) touchVolumeClaim(k types.NamespacedName) {
	for pod := range s.claimants[k] {
		s.touchPod(pod)
	}
	s.touchDependentDaemons()
}

// touchDependentDaemons marks the DaemonSets if the meaning of any depends on what is
// around it.
func (s *State) touchDependentDaemons() {
	for _, d := range s.daemonSets {
		if dependent(&corev1.Pod{Spec: d.Spec.Template.Spec}) {
			s.touchDaemons()
			return
		}
	}
}

// touchVolume marks the pods that use a PersistentVolume: by the claim that it is for,
// and by the one that names it.
func (s *State) touchVolume(v *corev1.PersistentVolume) {
	if v == nil {
		return
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		s.touchVolumeClaim(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	}
	if k, ok := s.claimOn[v.Name]; ok {
		s.touchVolumeClaim(k)
	}
}

// use records, or forgets, which claims a pod uses.
func (s *State) use(p *corev1.Pod, on bool) {
	for _, name := range VolumeClaims(p) {
		claim := types.NamespacedName{Namespace: p.Namespace, Name: name}
		pods := s.claimants[claim]
		switch {
		case on && pods == nil:
			s.claimants[claim] = map[types.NamespacedName]struct{}{key(p): {}}
		case on:
			pods[key(p)] = struct{}{}
		default:
			if delete(pods, key(p)); len(pods) == 0 {
				delete(s.claimants, claim)
			}
		}
		// Who comes first may be another now.
		if c := s.volumeClaims[claim]; c != nil && oneNode(c.Spec.AccessModes) {
			for pod := range s.claimants[claim] {
				s.touchPod(pod)
			}
		}
	}
}

func (s *State) touchDaemons() {
	for _, d := range s.dirty {
		*d.daemons = true
	}
}

// Set records an object of a kind that pods and nodes depend on: Namespace,
// PersistentVolumeClaim, PersistentVolume, StorageClass, PodDisruptionBudget or CSINode.
func (s *State) Set(o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Namespace:
		old, had := s.namespaces[o.Name]
		if s.namespaces[o.Name] = o.Labels; !had || !maps.Equal(old, o.Labels) {
			s.touchAround(scopeNamespaces)
			s.touchDependentDaemons()
		}
	case *corev1.PersistentVolumeClaim:
		k := key(o)
		if old := s.volumeClaims[k]; old != nil && s.claimOn[old.Spec.VolumeName] == k {
			delete(s.claimOn, old.Spec.VolumeName)
		}
		if s.volumeClaims[k] = o; o.Spec.VolumeName != "" {
			s.claimOn[o.Spec.VolumeName] = k
		}
		s.touchVolumeClaim(k)
	case *corev1.PersistentVolume:
		s.touchVolume(s.volumes[o.Name])
		s.volumes[o.Name] = o
		s.touchVolume(o)
	case *storagev1.StorageClass:
		s.storageClasses[o.Name] = o
		s.touchAround(scopeClasses)
		s.touchDependentDaemons()
	case *policyv1.PodDisruptionBudget:
		old := s.budgets[key(o)]
		s.budgets[key(o)] = o
		if old == nil || old.Generation != o.Generation { // its status changes with every pod
			s.touchAround(scopeBudgets)
		}
	case *storagev1.CSINode:
		s.recount(o.Name, func() { s.csiNodes[o.Name] = o })
		s.touchNamed(o.Name)
	}
}

// Delete forgets an object of the kinds of Set.
func (s *State) Delete(o any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Namespace:
		delete(s.namespaces, o.Name)
		s.touchAround(scopeNamespaces)
		s.touchDependentDaemons()
	case *corev1.PersistentVolumeClaim:
		k := key(o)
		if s.claimOn[o.Spec.VolumeName] == k {
			delete(s.claimOn, o.Spec.VolumeName)
		}
		delete(s.volumeClaims, k)
		s.touchVolumeClaim(k)
	case *corev1.PersistentVolume:
		delete(s.volumes, o.Name)
		s.touchVolume(o)
	case *storagev1.StorageClass:
		delete(s.storageClasses, o.Name)
		s.touchAround(scopeClasses)
		s.touchDependentDaemons()
	case *policyv1.PodDisruptionBudget:
		delete(s.budgets, key(o))
		s.touchAround(scopeBudgets)
	case *storagev1.CSINode:
		s.recount(o.Name, func() { delete(s.csiNodes, o.Name) })
		s.touchNamed(o.Name)
	}
}
