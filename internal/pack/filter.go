package pack

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A filter says which nodes a pod can use by labels and taints alone. Pods of
// many shapes have the same filter, so that what it lets through is computed
// once for each class of nodes and each pool.
type filter struct {
	key  string
	refs int
	// choices must all hold; of each at least one alternative must.
	choices []choice
	// tolerations decide about taints as the rule says.
	tolerations []Toleration
	taints      taintRule
	// ports are those that must not be taken by a daemon.
	ports []HostPort
	// named is true if a clause is about the node's own name, so that nodes of one
	// class can differ.
	named bool
	// classes remembers the answer by node class: unknown, no or yes.
	classes []uint8
}

// choice is a list of alternatives, each a list of clauses that must all hold.
type choice [][]clause

// clause bounds one label.
type clause struct {
	key string
	set Set
}

// taintRule says which taints a filter minds.
type taintRule uint8

const (
	// hardTaints minds NoSchedule and NoExecute.
	hardTaints taintRule = iota
	// allTaints minds PreferNoSchedule as well.
	allTaints
	// noTaints minds none.
	noTaints
)

// What a filter remembers of a class.
const (
	unknown uint8 = iota
	no
	yes
)

// nameKeys are the labels that differ between nodes of one class.
func isNameKey(key string) bool { return key == LabelHostname || key == FieldName }

// newFilter returns the filter of a spec. Volumes, ports and soft taints are in
// it on demand.
func newFilter(s *PodSpec, rule taintRule, volumes bool) *filter {
	f := &filter{tolerations: s.Tolerations, taints: rule}
	if len(s.NodeSelector) > 0 {
		f.choices = append(f.choices, choice{clauses(s.NodeSelector)})
	}
	add := func(terms [][]Requirement) {
		c := choice{}
		for _, t := range terms {
			if len(t) > 0 {
				c = append(c, clauses(t))
			}
		}
		f.choices = append(f.choices, c)
	}
	if s.Affinity != nil {
		add(s.Affinity)
	}
	if volumes {
		for i := range s.Volumes {
			if s.Volumes[i].Terms != nil {
				add(s.Volumes[i].Terms)
			}
		}
		f.ports = s.HostPorts
	}
	f.seal()
	return f
}

// seal writes the filter's key once its parts are there.
func (f *filter) seal() {
	f.named = false
	var parts []string
	for _, c := range f.choices {
		var alts []string
		for _, a := range c {
			var b []byte
			for _, cl := range a {
				b = cl.append(b)
				f.named = f.named || isNameKey(cl.key)
			}
			alts = append(alts, string(b))
		}
		slices.Sort(alts)
		parts = append(parts, joined(slices.Compact(alts)))
	}
	slices.Sort(parts)
	var tol []string
	if f.taints != noTaints {
		for _, t := range f.tolerations {
			b := appendString(appendString([]byte{byte(t.Effect)}, t.Key), t.Value)
			if t.Exists {
				b = append(b, 1)
			}
			tol = append(tol, string(b))
		}
		slices.Sort(tol)
	}
	var ports []string
	for _, p := range f.ports {
		ports = append(ports, string(p.append(nil)))
	}
	slices.Sort(ports)
	f.key = string(byte(f.taints)) + joined(slices.Compact(parts)) + joined(slices.Compact(tol)) + joined(ports)
}

// clauses merges requirements into one clause a key, sorted.
func clauses(reqs []Requirement) []clause {
	out := make([]clause, 0, len(reqs))
	for _, r := range reqs {
		if i := slices.IndexFunc(out, func(c clause) bool { return c.key == r.Key }); i >= 0 {
			out[i].set = out[i].set.Intersect(r.Set())
		} else {
			out = append(out, clause{r.Key, r.Set()})
		}
	}
	slices.SortFunc(out, func(a, b clause) int { return cmp.Compare(a.key, b.key) })
	return out
}

// The append functions write values down so that equal ones, and no others, give
// equal bytes.

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func joined(list []string) string {
	b := binary.AppendUvarint(nil, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return string(b)
}

func (c clause) append(b []byte) []byte { return c.set.append(appendString(b, c.key)) }

func (s Set) append(b []byte) []byte {
	var flags byte
	for i, on := range [...]bool{s.complement, s.absent, s.bounded} {
		if on {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	if s.bounded {
		b = binary.AppendVarint(binary.AppendVarint(b, s.lo), s.hi)
	}
	return append(b, joined(s.values)...)
}

func (p HostPort) append(b []byte) []byte {
	return binary.AppendVarint(appendString(appendString(b, p.IP), p.Protocol), int64(p.Port))
}

// tolerates reports whether the toleration covers the taint.
func (o Toleration) tolerates(t Taint) bool {
	if o.Effect != AnyEffect && o.Effect != t.Effect {
		return false
	}
	if o.Key == "" {
		return o.Exists
	}
	return o.Key == t.Key && (o.Exists || o.Value == t.Value)
}

// untolerated returns the index of the first taint that the filter minds, or -1.
func (f *filter) untolerated(taints []Taint) int {
	if f.taints == noTaints {
		return -1
	}
next:
	for i, t := range taints {
		if t.Effect == PreferNoSchedule && f.taints == hardTaints {
			continue
		}
		for _, o := range f.tolerations {
			if o.tolerates(t) {
				continue next
			}
		}
		return i
	}
	return -1
}

// conflicts reports whether both ports cannot be bound on one node.
func (p HostPort) conflicts(q HostPort) bool {
	return p.Port == q.Port && p.Protocol == q.Protocol && (p.anyIP() || q.anyIP() || p.IP == q.IP)
}

func (p HostPort) anyIP() bool { return p.IP == "" || p.IP == "0.0.0.0" || p.IP == "::" }

// allows reports whether the labels let the filter's pods in; label returns what
// is known of one.
func (f *filter) allows(label func(key string) Set) bool {
	for _, c := range f.choices {
		if !slices.ContainsFunc(c, func(alt []clause) bool { return holds(alt, label) }) {
			return false
		}
	}
	return true
}

// holds reports whether every outcome of the labels satisfies the clauses.
func holds(alt []clause, label func(key string) Set) bool {
	for _, cl := range alt {
		if !label(cl.key).Within(cl.set) {
			return false
		}
	}
	return true
}

// filters numbers the filters in use. The number of one that is no longer used
// is given to the next.
type filters struct {
	list []*filter
	ids  map[string]int32
	free []int32
}

// acquire returns the number of the filter with f's key and counts a use.
func (r *filters) acquire(f *filter) int32 {
	if id, ok := r.ids[f.key]; ok {
		r.list[id].refs++
		return id
	}
	if r.ids == nil {
		r.ids = map[string]int32{}
	}
	f.refs = 1
	id := int32(len(r.list))
	if n := len(r.free); n > 0 {
		id = r.free[n-1]
		r.free = r.free[:n-1]
		r.list[id] = f
	} else {
		r.list = append(r.list, f)
	}
	r.ids[f.key] = id
	return id
}

// release ends a use and reports whether it was the last.
func (r *filters) release(id int32) bool {
	f := r.list[id]
	if f.refs--; f.refs > 0 {
		return false
	}
	delete(r.ids, f.key)
	r.list[id] = nil
	r.free = append(r.free, id)
	return true
}

func (r *filters) at(id int32) *filter { return r.list[id] }
