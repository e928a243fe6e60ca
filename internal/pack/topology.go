package pack

import (
	"encoding/binary"
	"slices"
)

// Topology is counted, not searched. A selection is a set of pods that some
// constraint names; a tally counts, for each value of one label, the pods of a
// selection on nodes with that value. Pods with equal labels in one namespace
// form a class, and a class knows its selections, so that a pod that comes or
// goes touches the tallies that count it and nothing else.
//
//	pod ─► labelClass ─► selections ─► tallies ─► count of the node's value

// labelClass is the pods that have the same labels in the same namespace.
type labelClass struct {
	key       string
	refs      int
	namespace string
	labels    map[string]string
	in        []*selection
	// head is the first pod of the class, or -1.
	head int32
}

// selection is the pods that match all of its terms.
type selection struct {
	key   string
	refs  int
	terms []podTerm
	// counts and repels are the tallies over it: those that count its pods, and
	// those that count the pods which repel its pods.
	counts, repels []*tally
}

// podTerm is a PodTerm's selector with the namespaces that it is about.
type podTerm struct {
	all        bool
	namespaces []string
	nothing    bool
	clauses    []clause
}

func newPodTerm(t PodTerm, own string) podTerm {
	out := podTerm{all: t.AllNamespaces, nothing: t.Selector.Nothing, clauses: clauses(t.Selector.Requirements)}
	if !out.all {
		out.namespaces = slices.Clone(t.Namespaces)
		if len(out.namespaces) == 0 {
			out.namespaces = []string{own}
		}
		slices.Sort(out.namespaces)
		out.namespaces = slices.Compact(out.namespaces)
	}
	return out
}

func (t podTerm) append(b []byte) []byte {
	flags := byte(b2i(t.all) | b2i(t.nothing)<<1)
	b = appendString(append(b, flags), joined(t.namespaces))
	b = binary.AppendUvarint(b, uint64(len(t.clauses)))
	for _, c := range t.clauses {
		b = c.append(b)
	}
	return b
}

func (t podTerm) matches(namespace string, labels map[string]string) bool {
	if t.nothing || !t.all && !slices.Contains(t.namespaces, namespace) {
		return false
	}
	for i := range t.clauses {
		c := &t.clauses[i]
		if v, ok := labels[c.key]; ok && !c.set.Has(v) || !ok && !c.set.absent {
			return false
		}
	}
	return true
}

func (sel *selection) matches(c *labelClass) bool {
	for _, t := range sel.terms {
		if !t.matches(c.namespace, c.labels) {
			return false
		}
	}
	return true
}

// tally counts pods by the value of a label of their nodes. Of the label that
// differs on every node it counts by node.
type tally struct {
	key   string
	refs  int
	sel   *selection
	label string
	// repel means that it counts the pods that repel the selection.
	repel bool
	// include, if it is not negative, says which nodes count; they also need the
	// labels in need.
	include int32
	need    []string
	// values numbers the label's values, shared by the tallies of one label.
	values *symbols
	counts []int32
	byNode map[int32]int32
	total  int32
	// port is the host port that its pods bind, if it counts one; such a tally has
	// no selection, and its label is thisNode.
	port HostPort
}

// thisNode stands for the label of tallies that count by node whether it carries
// the label that differs on every node or not.
const thisNode = ""

// spreads reports whether the tally is that of a spread constraint, which alone looks
// at nodes' affinity and taints.
func (t *tally) spreads() bool { return t.include >= 0 }

// add counts n more pods on a node.
func (t *tally) add(s *State, node int32, n int32) {
	nd := &s.nodes[node]
	if t.include >= 0 {
		for _, key := range t.need {
			if _, ok := nd.Labels[key]; !ok {
				return
			}
		}
		if !s.admits(t.include, node) {
			return
		}
	}
	if t.byNode != nil {
		if _, ok := nd.Labels[LabelHostname]; !ok && t.label == LabelHostname {
			return
		}
		t.total += n
		if c := t.byNode[node] + n; c != 0 {
			t.byNode[node] = c
		} else {
			delete(t.byNode, node)
		}
		return
	}
	v, ok := nd.Labels[t.label]
	if !ok {
		return
	}
	t.total += n
	i := t.values.id(v)
	for int(i) >= len(t.counts) {
		t.counts = append(t.counts, 0)
	}
	t.counts[i] += n
}

// classOf returns the class of a pod's labels and counts a use.
func (s *State) classOf(namespace string, labels map[string]string) *labelClass {
	s.buf = appendLabels(appendString(s.buf[:0], namespace), labels, &s.names)
	if c, ok := s.labelClasses[string(s.buf)]; ok {
		c.refs++
		return c
	}
	c := &labelClass{key: string(s.buf), refs: 1, namespace: namespace, labels: labels, head: -1}
	s.labelClasses[c.key] = c
	in := s.byNamespace[namespace]
	if in == nil {
		in = map[*labelClass]struct{}{}
		s.byNamespace[namespace] = in
	}
	in[c] = struct{}{}
	for _, sel := range s.unanchored {
		if sel.matches(c) {
			c.in = append(c.in, sel)
		}
	}
	for k, v := range labels {
		s.buf = appendString(appendString(s.buf[:0], k), v)
		for _, sel := range s.anchored[string(s.buf)] {
			if sel.matches(c) {
				c.in = append(c.in, sel)
			}
		}
	}
	return c
}

func (s *State) releaseClass(c *labelClass) {
	if c.refs--; c.refs > 0 {
		return
	}
	delete(s.labelClasses, c.key)
	delete(s.byNamespace[c.namespace], c)
	if len(s.byNamespace[c.namespace]) == 0 {
		delete(s.byNamespace, c.namespace)
	}
}

// appendLabels writes labels down in order of their keys.
func appendLabels(b []byte, labels map[string]string, scratch *[]string) []byte {
	names := (*scratch)[:0]
	for k := range labels {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		b = appendString(appendString(b, k), labels[k])
	}
	*scratch = names
	return b
}

// selectionOf returns the selection of the terms and counts a use.
func (s *State) selectionOf(terms []podTerm) *selection {
	var parts []string
	for _, t := range terms {
		parts = append(parts, string(t.append(nil)))
	}
	slices.Sort(parts)
	key := joined(slices.Compact(parts))
	if sel, ok := s.selections[key]; ok {
		sel.refs++
		return sel
	}
	sel := &selection{key: key, refs: 1, terms: terms}
	s.selections[key] = sel
	if anchors := sel.anchors(); anchors != nil {
		for _, a := range anchors {
			s.anchored[a] = append(s.anchored[a], sel)
		}
	} else {
		s.unanchored = append(s.unanchored, sel)
	}
	s.eachClass(sel, func(c *labelClass) {
		if sel.matches(c) {
			c.in = append(c.in, sel)
		}
	})
	return sel
}

// eachClass visits the classes in the selection's namespaces.
func (s *State) eachClass(sel *selection, visit func(*labelClass)) {
	if sel.terms[0].all {
		for _, c := range s.labelClasses {
			visit(c)
		}
		return
	}
	for _, ns := range sel.terms[0].namespaces {
		for c := range s.byNamespace[ns] {
			visit(c)
		}
	}
}

// anchors returns the labels of which a pod must have one to match, each as it
// is written in the index, or nil if there is no such list.
func (sel *selection) anchors() []string {
	for _, t := range sel.terms {
		for _, c := range t.clauses {
			if values, ok := c.set.Values(); ok && !c.set.absent {
				out := []string{}
				for _, v := range values {
					out = append(out, string(appendString(appendString(nil, c.key), v)))
				}
				return out
			}
		}
	}
	return nil
}

func (s *State) releaseSelection(sel *selection) {
	if sel.refs--; sel.refs > 0 {
		return
	}
	delete(s.selections, sel.key)
	drop := func(list []*selection) []*selection {
		return slices.DeleteFunc(list, func(t *selection) bool { return t == sel })
	}
	for _, a := range sel.anchors() {
		if s.anchored[a] = drop(s.anchored[a]); len(s.anchored[a]) == 0 {
			delete(s.anchored, a)
		}
	}
	s.unanchored = drop(s.unanchored)
	s.eachClass(sel, func(c *labelClass) { c.in = drop(c.in) })
}

// tallyOf returns a tally over the terms and counts a use. A new one starts from
// the pods that run.
func (s *State) tallyOf(terms []podTerm, label string, repel bool, include int32, need []string) *tally {
	sel := s.selectionOf(terms)
	b := appendString(appendString([]byte{byte(b2i(repel))}, sel.key), label)
	b = append(binary.AppendVarint(b, int64(include)), joined(need)...)
	key := string(b)
	if t, ok := s.tallies[key]; ok {
		s.releaseSelection(sel)
		t.refs++
		return t
	}
	t := &tally{key: key, refs: 1, sel: sel, label: label, repel: repel, include: include, need: need}
	if include >= 0 {
		s.filters.at(include).refs++
	}
	if label == LabelHostname || label == thisNode {
		t.byNode = map[int32]int32{}
	} else {
		t.values = s.valuesOf(label)
	}
	s.tallies[key] = t
	if repel {
		sel.repels = append(sel.repels, t)
		return t
	}
	sel.counts = append(sel.counts, t)
	s.eachClass(sel, func(c *labelClass) {
		if slices.Contains(c.in, sel) {
			for p := c.head; p >= 0; p = s.pods[p].classNext {
				if s.pods[p].leaving && t.spreads() {
					continue
				}
				if on := s.pods[p].node; on >= 0 && !(s.hidden != nil && s.hidden.has(int(on))) {
					t.add(s, s.pods[p].node, 1)
				}
			}
		}
	})
	return t
}

// portTally returns the tally of the pods that bind a host port and counts a use.
func (s *State) portTally(p HostPort) *tally {
	key := string(p.append([]byte{2}))
	t, ok := s.tallies[key]
	if !ok {
		t = &tally{key: key, label: thisNode, include: nowhere, port: p, byNode: map[int32]int32{}}
		s.tallies[key] = t
		s.ports[p.Port] = append(s.ports[p.Port], t)
	}
	t.refs++
	return t
}

// valuesOf returns the numbers of a label's values.
func (s *State) valuesOf(label string) *symbols {
	v := s.values[label]
	if v == nil {
		v = &symbols{}
		s.values[label] = v
	}
	return v
}

func (s *State) releaseTally(t *tally) {
	if t.refs--; t.refs > 0 {
		return
	}
	delete(s.tallies, t.key)
	if t.sel == nil {
		n := t.port.Port
		if s.ports[n] = slices.DeleteFunc(s.ports[n], func(u *tally) bool { return u == t }); len(s.ports[n]) == 0 {
			delete(s.ports, n)
		}
		return
	}
	drop := func(list []*tally) []*tally {
		return slices.DeleteFunc(list, func(u *tally) bool { return u == t })
	}
	t.sel.counts, t.sel.repels = drop(t.sel.counts), drop(t.sel.repels)
	s.releaseSelection(t.sel)
	if t.include >= 0 {
		s.releaseFilter(t.include)
	}
}
