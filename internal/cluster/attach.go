package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// attachments is what the nodes of each instance type report at least of how many
// volumes can be attached, by CSI driver. What a driver will report of a node is known
// only once it runs there; until then the node is taken for one like those seen.
type attachments struct {
	least map[string]map[string]int
	// moment grows with every change.
	moment uint64
}

// note takes a report over. The inner maps are never changed, as they are shared with
// problems.
func (a *attachments) note(instanceType string, limits map[string]int) {
	for driver, n := range limits {
		if had, ok := a.least[instanceType][driver]; ok && had <= n || instanceType == "" {
			continue
		}
		next := maps.Clone(a.least[instanceType])
		if next == nil {
			next = map[string]int{}
		}
		next[driver] = n
		a.least[instanceType] = next
		a.moment++
	}
}

// of is the least that any of the types has, for the drivers of which something is known.
func (a *attachments) of(types []cloud.InstanceType) map[string]int {
	var out map[string]int
	for _, t := range types {
		for driver, n := range a.least[t.Name] {
			if had, ok := out[driver]; ok && had <= n {
				continue
			}
			if out == nil {
				out = map[string]int{}
			}
			out[driver] = n
		}
	}
	return out
}

// setCSINode is called with the lock held.
func (s *State) setCSINode(o *storagev1.CSINode) {
	old := attachLimits(s.csiNodes[o.Name])
	s.csiNodes[o.Name] = o
	s.touchNamed(o.Name)
	limits := attachLimits(o)
	for driver, n := range old {
		// A driver takes its report back while it's updated: what it said stays known.
		// More than before may mean that the least of the type is more.
		if limits[driver] > n {
			s.attach.least = map[string]map[string]int{}
			for name, c := range s.csiNodes {
				s.attach.note(s.typeOf(name), attachLimits(c))
			}
			s.attach.moment++
			return
		}
	}
	s.attach.note(s.typeOf(o.Name), limits)
}

// typeOf is a Node's instance type, "" if it isn't known.
func (s *State) typeOf(node string) string {
	if n := s.nodes[node]; n != nil {
		return n.Labels[corev1.LabelInstanceTypeStable]
	}
	return ""
}

// attachOf is how many volumes can be attached to a Node, by driver: what its drivers
// report, and before one does, what it does on nodes of the type.
func (s *State) attachOf(n *corev1.Node) map[string]int {
	csi := s.csiNodes[n.Name]
	out := maps.Clone(s.attach.least[s.typeOf(n.Name)])
	if len(out) == 0 {
		return attachLimits(csi)
	}
	if csi != nil {
		for _, d := range csi.Spec.Drivers {
			delete(out, d.Name)
		}
	}
	maps.Copy(out, attachLimits(csi))
	return out
}

// attachLimits are a node's caps on volumes by driver, as its CSI drivers report.
func attachLimits(n *storagev1.CSINode) map[string]int {
	if n == nil {
		return nil
	}
	var out map[string]int
	for _, d := range n.Spec.Drivers {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		if out == nil {
			out = map[string]int{}
		}
		out[d.Name] = int(*d.Allocatable.Count)
	}
	return out
}
