package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
)

// attachments is what the nodes of each instance type report at least of how many
// volumes can be attached, by CSI driver. What a driver will report of a node is known
// only once it runs there; until then the node is taken for one like those that are there.
type attachments struct {
	// reports counts nodes by type, driver and what they report.
	reports map[string]map[string]map[int]int
	// least is by type and driver. The inner maps are never changed, as problems share
	// them.
	least map[string]map[string]int
	// moment grows with every change of least.
	moment uint64
}

// count adds a node's report, or with -1 takes it back.
func (a *attachments) count(instanceType string, limits map[string]int, sign int) {
	if instanceType == "" {
		return
	}
	for driver, n := range limits {
		if a.reports[instanceType] == nil {
			a.reports[instanceType] = map[string]map[int]int{}
		}
		nodes := a.reports[instanceType][driver]
		if nodes == nil {
			nodes = map[int]int{}
			a.reports[instanceType][driver] = nodes
		}
		if nodes[n] += sign; nodes[n] == 0 {
			delete(nodes, n)
		}
		had, known := a.least[instanceType][driver]
		if known && len(nodes) > 0 && had == slices.Min(slices.Collect(maps.Keys(nodes))) {
			continue
		}
		next := maps.Clone(a.least[instanceType])
		if next == nil {
			next = map[string]int{}
		}
		if len(nodes) > 0 {
			next[driver] = slices.Min(slices.Collect(maps.Keys(nodes)))
		} else {
			delete(next, driver)
		}
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

// recount changes what is known of a Node or its CSINode. It is called with the lock
// held.
func (s *State) recount(node string, change func()) {
	oldType, old := s.typeOf(node), attachLimits(s.csiNodes[node])
	change()
	newType, now := s.typeOf(node), attachLimits(s.csiNodes[node])
	if oldType != newType || !maps.Equal(old, now) { // most changes are others
		s.attach.count(oldType, old, -1)
		s.attach.count(newType, now, 1)
	}
}

// typeOf is a Node's instance type, "" if it isn't known.
func (s *State) typeOf(node string) string {
	if n := s.nodes[node]; n != nil {
		return n.Labels[corev1.LabelInstanceTypeStable]
	}
	return ""
}

// attachOf is how many volumes can be attached to a Node, by driver: what its drivers
// report, and before one does, what it does on nodes of the type. A driver whose
// topology the Node doesn't have can't make any volume for it.
func (s *State) attachOf(n *corev1.Node) map[string]int {
	out := maps.Clone(s.attach.least[s.typeOf(n.Name)])
	set := func(driver string, count int) {
		if out == nil {
			out = map[string]int{}
		}
		out[driver] = count
	}
	if csi := s.csiNodes[n.Name]; csi != nil {
		for _, d := range csi.Spec.Drivers {
			delete(out, d.Name)
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				set(d.Name, int(*d.Allocatable.Count))
			}
			for _, key := range d.TopologyKeys {
				if _, ok := n.Labels[volumeLabel(key)]; !ok {
					set(d.Name, 0)
				}
			}
		}
	}
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
