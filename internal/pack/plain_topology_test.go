package pack

import (
	"cmp"
	"maps"
	"slices"
)

// add puts the pod on the node if every rule allows it.
func (w *plainWorld) add(n *plainNode, pod *Pod, s *PodSpec) bool {
	if n.node != nil && n.node.Closed || !tolerates(s.Tolerations, n.taints, false) || !portsFree(n, s) {
		return false
	}
	// Every combination of a node affinity term and volume terms is one way.
	ways := [][]Requirement{s.NodeSelector}
	cross := func(terms [][]Requirement) {
		var next [][]Requirement
		for _, way := range ways {
			for _, t := range terms {
				if len(t) > 0 {
					next = append(next, append(slices.Clone(way), t...))
				}
			}
		}
		ways = next
	}
	if s.Affinity != nil {
		cross(s.Affinity)
	}
	for _, v := range s.Volumes {
		if v.Terms != nil {
			cross(v.Terms)
		}
	}
	for _, way := range ways {
		if !n.isNew {
			c := plainCand{free: n.free, labels: n.labels}
			if w.fitsOne(n, c, pod, s, way) && w.topologyAllows(n, n.labels, pod, s) {
				n.pods = append(n.pods, &Pod{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Spec: s})
				return true
			}
			continue
		}
		sets := maps.Clone(n.sets)
		possible := true
		for _, r := range way {
			if _, ok := n.labels[r.Key]; ok || n.pool.definedByTypes(r.Key) {
				continue
			}
			have, ok := sets[r.Key]
			if !ok {
				have = n.outcome(w, r.Key)
			}
			have = have.Intersect(r.Set())
			if have.Empty() {
				possible = false
			}
			sets[r.Key] = have
		}
		if !possible {
			continue
		}
		var fits []plainCand
		for _, c := range n.cands {
			if w.fitsOne(n, c, pod, s, way) {
				fits = append(fits, c)
			}
		}
		keys := w.topologyKeys(pod, s)
		tried := map[string]bool{}
		for _, c := range fits {
			labels := maps.Clone(n.labels)
			maps.Copy(labels, c.labels)
			chosen := maps.Clone(sets)
			tuple := ""
			for _, k := range keys {
				if set, ok := chosen[k]; ok && labels[k] == "" {
					if v, ok := set.Example(); ok {
						labels[k], chosen[k] = v, OneOf(v)
					}
				}
				tuple += labels[k] + "\x00"
			}
			if tried[tuple] {
				continue
			}
			tried[tuple] = true
			if !w.topologyAllows(n, labels, pod, s) {
				continue
			}
			var same []plainCand
			for _, d := range fits {
				if !slices.ContainsFunc(keys, func(k string) bool { return c.labels[k] != d.labels[k] }) {
					same = append(same, d)
				}
			}
			relaxed := w.o.MinValues == BestEffort
			if !relaxed && !minValuesMet(n.pool, same) {
				continue
			}
			n.cands, n.sets = same, chosen
			n.pods = append(n.pods, &Pod{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, Spec: s})
			return true
		}
	}
	return false
}

func minValuesMet(pool *Pool, cands []plainCand) bool {
	for _, r := range pool.Requirements {
		seen := map[string]bool{}
		for _, c := range cands {
			if v, ok := c.labels[r.Key]; ok {
				seen[v] = true
			}
		}
		if r.MinValues > 0 && len(seen) < r.MinValues {
			return false
		}
	}
	return true
}

// fitsOne checks requirements, resources and volumes against one outcome.
func (w *plainWorld) fitsOne(n *plainNode, c plainCand, pod *Pod, s *PodSpec, way []Requirement) bool {
	for _, r := range way {
		set := r.Set()
		if v, ok := c.labels[r.Key]; ok {
			if !set.Has(v) {
				return false
			}
		} else if v, ok := n.labels[r.Key]; ok {
			if !set.Has(v) {
				return false
			}
		} else if !n.isNew {
			have := n.outcome(w, r.Key)
			if _, known := n.sets[r.Key]; known && !have.Within(set) || !known && !set.HasAbsent() {
				return false
			}
		} else if n.pool.definedByTypes(r.Key) && !set.HasAbsent() {
			return false
		}
	}
	need := podRequests(s)
	for _, p := range n.pods {
		for r, q := range podRequests(p.Spec) {
			if need[r] > 0 {
				need[r] += q
			}
		}
	}
	for r, q := range need {
		if q > 0 && q > c.free[r] {
			return false
		}
	}
	attach := n.attach
	if n.isNew {
		attach = c.typ.Attach
	}
	byDriver := map[string]map[string]bool{}
	for _, p := range append(slices.Clone(n.pods), &Pod{Spec: s}) {
		for _, v := range p.Spec.Volumes {
			if v.Driver != "" {
				if byDriver[v.Driver] == nil {
					byDriver[v.Driver] = map[string]bool{}
				}
				byDriver[v.Driver][v.Name] = true
			}
		}
	}
	for _, v := range s.Volumes {
		if limit, ok := attach[v.Driver]; ok && v.Driver != "" && len(byDriver[v.Driver]) > limit {
			return false
		}
	}
	for _, a := range s.HostPorts {
		if slices.ContainsFunc(c.ports, a.conflicts) {
			return false
		}
	}
	return true
}

func portsFree(n *plainNode, s *PodSpec) bool {
	for _, a := range s.HostPorts {
		for _, p := range n.pods {
			if slices.ContainsFunc(p.Spec.HostPorts, a.conflicts) {
				return false
			}
		}
	}
	return true
}

func (s Selector) matches(labels map[string]string) bool {
	if s.Nothing {
		return false
	}
	for _, r := range s.Requirements {
		v, ok := labels[r.Key]
		if set := r.Set(); ok && !set.Has(v) || !ok && !set.HasAbsent() {
			return false
		}
	}
	return true
}

// matches reports whether a pod is selected by a term of a pod in namespace own.
func (t PodTerm) matches(own string, pod *Pod) bool {
	in := t.AllNamespaces || len(t.Namespaces) == 0 && pod.Namespace == own || slices.Contains(t.Namespaces, pod.Namespace)
	return in && t.Selector.matches(pod.Labels)
}

// topologyKeys are the labels that must be settled once the pod is on a node.
func (w *plainWorld) topologyKeys(pod *Pod, s *PodSpec) []string {
	keys := map[string]bool{}
	for _, c := range s.Spread {
		keys[c.TopologyKey] = true
	}
	for _, t := range append(slices.Clone(s.PodAffinity), s.PodAntiAffinity...) {
		keys[t.TopologyKey] = true
	}
	for i := range w.p.Pods {
		q := &w.p.Pods[i]
		for _, c := range q.Spec.Spread {
			if q.Namespace == pod.Namespace && c.Selector.matches(pod.Labels) {
				keys[c.TopologyKey] = true
			}
		}
		for _, terms := range [][]PodTerm{q.Spec.PodAffinity, q.Spec.PodAntiAffinity, bare(q.Spec.PreferredPodAffinity), bare(q.Spec.PreferredPodAntiAffinity)} {
			for _, t := range terms {
				if t.matches(q.Namespace, pod) {
					keys[t.TopologyKey] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func bare(terms []WeightedPodTerm) []PodTerm {
	out := make([]PodTerm, len(terms))
	for i, t := range terms {
		out[i] = t.PodTerm
	}
	return out
}

// where returns the node's value for a topology key, if it is settled.
func (n *plainNode) where(key string) (string, bool) {
	if v, ok := n.labels[key]; ok {
		return v, true
	}
	if set, ok := n.sets[key]; ok {
		if v, finite := set.Values(); finite && len(v) == 1 {
			return v[0], true
		}
		return "", false
	}
	v, ok := "", false
	for i, c := range n.cands {
		u, has := c.labels[key]
		if i > 0 && u != v || !has {
			return "", false
		}
		v, ok = u, true
	}
	return v, ok
}

// topologyAllows applies spread and pod affinity to the pod on the node, which
// would have the labels.
func (w *plainWorld) topologyAllows(n *plainNode, labels map[string]string, pod *Pod, s *PodSpec) bool {
	for _, t := range s.PodAntiAffinity {
		v, ok := labels[t.TopologyKey]
		if ok && w.count(t.TopologyKey, v, func(q *Pod) bool { return t.matches(pod.Namespace, q) }) > 0 {
			return false
		}
	}
	for _, m := range w.nodes {
		for _, q := range m.pods {
			for _, t := range q.Spec.PodAntiAffinity {
				v, ok := m.where(t.TopologyKey)
				if ok && labels[t.TopologyKey] == v && t.matches(q.Namespace, pod) {
					return false
				}
			}
		}
	}
	// As the scheduler does: a pod counts if it matches all affinity terms.
	all := func(q *Pod) bool {
		for _, t := range s.PodAffinity {
			if !t.matches(pod.Namespace, q) {
				return false
			}
		}
		return true
	}
	if len(s.PodAffinity) > 0 {
		met, some := true, false
		for _, t := range s.PodAffinity {
			v, ok := labels[t.TopologyKey]
			if !ok {
				return false
			}
			met = met && w.count(t.TopologyKey, v, all) > 0
			for _, m := range w.nodes {
				if _, ok := m.where(t.TopologyKey); ok && slices.ContainsFunc(m.pods, all) {
					some = true
				}
			}
		}
		if !met && (some || !all(pod)) {
			return false
		}
	}
	for _, c := range s.Spread {
		v, ok := labels[c.TopologyKey]
		if !ok || !w.skewAllows(c, v, pod, s) {
			return false
		}
	}
	return true
}

// count counts pods on nodes whose label has the value.
func (w *plainWorld) count(key, value string, match func(*Pod) bool) int {
	count := 0
	for _, m := range w.nodes {
		if v, ok := m.where(key); ok && v == value {
			for _, q := range m.pods {
				if match(q) {
					count++
				}
			}
		}
	}
	return count
}

func (w *plainWorld) skewAllows(c Spread, value string, pod *Pod, s *PodSpec) bool {
	counts := map[string]int32{}
	// The pod's own volumes and soft taints do not count for inclusion.
	include := func(labels map[string]string, sets map[string]Set, taints []Taint) bool {
		return (c.IgnoreAffinity || plainNodeMatches(pod.Spec, labels, sets, nil)) && (!c.HonorTaints || tolerates(s.Tolerations, taints, true))
	}
	for _, m := range w.nodes {
		labels := m.labels
		if m.isNew {
			labels = maps.Clone(labels)
			for _, k := range slices.Sorted(maps.Keys(m.cands[0].labels)) {
				if v, ok := m.where(k); ok {
					labels[k] = v
				} else if k != c.TopologyKey {
					labels[k] = m.cands[0].labels[k]
				}
			}
		}
		v, ok := m.where(c.TopologyKey)
		if !ok || !include(labels, m.sets, m.taints) || slices.ContainsFunc(s.Spread, func(d Spread) bool { _, ok := m.where(d.TopologyKey); return !ok }) {
			continue
		}
		for _, q := range m.pods {
			if q.Namespace == pod.Namespace && !q.Leaving && c.Selector.matches(q.Labels) {
				counts[v]++
			}
		}
		counts[v] += 0
	}
	low := int32(0)
	if c.TopologyKey != LabelHostname {
		for i := range w.p.Pools {
			pool := &w.p.Pools[i]
			for _, cand := range w.candidates(pool, false) {
				labels := maps.Clone(cand.labels)
				maps.Copy(labels, pool.Labels)
				labels[LabelPool] = pool.Name
				sets := map[string]Set{}
				for _, r := range pool.Requirements {
					if _, ok := labels[r.Key]; !ok {
						have, ok := sets[r.Key]
						if !ok {
							have = Anything()
						}
						sets[r.Key] = have.Intersect(r.Set())
					}
				}
				if include(labels, sets, pool.Taints) {
					if v, ok := labels[c.TopologyKey]; ok {
						counts[v] += 0
					} else if vs, finite := sets[c.TopologyKey].Values(); finite {
						for _, v := range vs {
							counts[v] += 0
						}
					}
				}
			}
		}
		low = maxInt32
		for _, n := range counts {
			low = min(low, n)
		}
		if int32(len(counts)) < c.MinDomains {
			low = 0
		}
	}
	self := int32(0)
	if c.Selector.matches(pod.Labels) {
		self = 1
	}
	return counts[value]+self-low <= c.MaxSkew
}

const maxInt32 = 1<<31 - 1

// explain gives the first cause in each pool.
func (w *plainWorld) explain(pod *Pod) []Reason {
	var out []Reason
	s := w.variants(pod.Spec)
	for i := range w.p.Pools {
		pool := &w.p.Pools[i]
		r := Reason{Pool: pool.Name, Cause: NoType}
		bare := *s[len(s)-1]
		bare.Spread, bare.PodAffinity, bare.PodAntiAffinity = nil, nil, nil
		switch {
		case !tolerates(s[len(s)-1].Tolerations, pool.Taints, true):
			r.Cause = Untolerated
		case len(w.candidates(pool, false)) > 0 && len(w.candidates(pool, true)) == 0:
			r.Cause = LimitReached
		default:
			if n := w.open(pool); n != nil {
				lone := &plainWorld{p: w.p, o: w.o}
				if lone.add(n, pod, &bare) {
					r.Cause = SpreadSkew
				}
			}
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Reason) int { return cmp.Compare(a.Pool, b.Pool) })
	if len(out) == 0 {
		out = []Reason{{Cause: NoPools}}
	}
	return out
}

// report writes the nodes down.
func (w *plainWorld) report(plan *Plan) {
	pending := map[string]bool{}
	for i := range w.p.Pods {
		if w.p.Pods[i].Node == "" {
			pending[w.p.Pods[i].Name] = true
		}
	}
	for _, n := range w.nodes {
		if !n.isNew {
			for _, q := range n.pods {
				if pending[q.Name] {
					plan.Assignments = append(plan.Assignments, Assignment{Pod: q.Name, Node: n.name})
				}
			}
			continue
		}
		node := NewNode{Pool: n.pool.Name, ReservationID: n.cands[0].off.ReservationID, Relaxed: !minValuesMet(n.pool, n.cands), Labels: maps.Clone(n.pool.Labels), MicroUSD: n.cands[0].off.MicroUSD, Requests: Resources{}}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		sets := maps.Clone(n.sets)
		index := map[string]int{}
		zones, kinds, names := []string{}, []string{}, []string{}
		least := Resources{}
		for i, c := range n.cands {
			at, ok := index[c.typ.Name]
			if !ok {
				at = len(node.Options)
				index[c.typ.Name] = at
				node.Options = append(node.Options, Option{Type: c.typ.Name})
				names = append(names, c.typ.Name)
			}
			node.Options[at].Offerings = append(node.Options[at].Offerings, *c.off)
			zones, kinds = append(zones, c.off.Zone), append(kinds, c.off.CapacityType)
			for r, q := range c.typ.Allocatable {
				if over := q - c.free[r]; i == 0 || over < least[r] {
					least[r] = over
				}
			}
		}
		for _, r := range n.pool.Requirements {
			if n.pool.definedByTypes(r.Key) {
				have, ok := sets[r.Key]
				if !ok {
					have = Anything()
				}
				sets[r.Key] = have.Intersect(r.Set())
			}
		}
		sets[LabelInstanceType], sets[LabelZone], sets[LabelCapacityType] = OneOf(names...), OneOf(zones...), OneOf(kinds...)
		for _, k := range slices.Sorted(maps.Keys(sets)) {
			node.Requirements = append(node.Requirements, sets[k].Requirements(k)...)
			if v, finite := sets[k].Values(); finite && len(v) == 1 && !n.pool.definedByTypes(k) {
				node.Labels[k] = v[0]
			}
		}
		maps.Copy(node.Requests, least)
		for _, q := range n.pods {
			for r, v := range podRequests(q.Spec) {
				node.Requests[r] += v
			}
			node.Pods = append(node.Pods, q.Name)
		}
		maps.DeleteFunc(node.Requests, func(_ string, v int64) bool { return v == 0 })
		slices.Sort(node.Pods)
		plan.MicroUSD += node.MicroUSD
		plan.NewNodes = append(plan.NewNodes, node)
	}
	slices.SortFunc(plan.Assignments, func(a, b Assignment) int { return cmp.Compare(a.Pod, b.Pod) })
	slices.SortFunc(plan.NewNodes, func(a, b NewNode) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.MicroUSD, b.MicroUSD), slices.Compare(a.Pods, b.Pods))
	})
	slices.SortFunc(plan.Unschedulable, func(a, b Unschedulable) int { return cmp.Compare(a.Pod, b.Pod) })
}
