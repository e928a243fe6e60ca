package pack

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// A spec is a PodSpec that pods of the state have, however many write it down
// separately.
type spec struct {
	key  string
	refs int
	src  *PodSpec
	// own is the namespace of its pods if a term means their own.
	own string
	// demand has an amount for each place on the axis, as far as the axis reached.
	demand []int64
	// marks are the tallies that count the pods of the spec whatever their labels:
	// one for each required anti-affinity term, for where its pods are those that
	// the term selects cannot be, and one for each host port.
	marks []*tally
	// forms are the variants by policy, made when first needed; byPool are those
	// for pools that have policies of their own, by the policy of the others.
	forms, byPool [Ignore + 1][]form
}

// A form is a spec with its preferences decided: those that it keeps are
// requirements, the others are gone.
type form struct {
	filter    int32
	spreads   []spreadForm
	affinity  []PodTerm
	anti      []PodTerm
	preferred []PodTerm // anti-affinity that does not repel others
	// lost is the weight of the preferences that are gone.
	lost int64
	// tallies are acquired when the form is first placed.
	tallies *formTallies
}

// spreadForm is a spread constraint and the filter that says which nodes count.
type spreadForm struct {
	Spread
	include int32
}

// What the preferences without a weight of their own count for under Priced.
// Nothing in Kubernetes fixes them; a soft spread is put at half the weight of
// the strongest preference, a soft taint at all of it.
const (
	softSpreadWeight = 50
	softTaintWeight  = 100
)

// encode writes a spec down so that specs of equal content, whatever the order of
// what has none, give equal bytes.
func (s *PodSpec) encode() string {
	var parts []string
	part := func(kind byte, b []byte) { parts = append(parts, string(append([]byte{kind}, b...))) }
	for _, name := range slices.Sorted(maps.Keys(s.Requests)) {
		if q := s.Requests[name]; q > 0 {
			part('r', binary.AppendVarint(appendString(nil, name), q))
		}
	}
	part('f', []byte(newFilter(s, allTaints, true).key))
	if s.Preferences != nil {
		part('o', []byte{byte(*s.Preferences)})
	}
	for _, p := range s.Preferred {
		b := binary.AppendVarint(nil, int64(p.Weight))
		for _, c := range clauses(p.Requirements) {
			b = c.append(b)
		}
		part('p', b)
	}
	for _, c := range s.Spread {
		b := binary.AppendVarint(binary.AppendVarint(appendString(nil, c.TopologyKey), int64(c.MaxSkew)), int64(c.MinDomains))
		for _, on := range [...]bool{c.ScheduleAnyway, c.IgnoreAffinity, c.HonorTaints} {
			if on {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
		part('s', c.Selector.append(b))
	}
	for _, t := range s.PodAffinity {
		part('a', t.append(nil))
	}
	for _, sel := range s.Beside {
		part('e', sel.append(nil))
	}
	for _, t := range s.PodAntiAffinity {
		part('b', t.append(nil))
	}
	for _, t := range s.PreferredPodAffinity {
		part('c', t.PodTerm.append(binary.AppendVarint(nil, int64(t.Weight))))
	}
	for _, t := range s.PreferredPodAntiAffinity {
		part('d', t.PodTerm.append(binary.AppendVarint(nil, int64(t.Weight))))
	}
	for i, v := range s.Volumes {
		// Where it can be attached is in the filter.
		if v.Driver != "" && firstOf(s.Volumes, i) {
			part('v', []byte(v.Driver))
		}
	}
	slices.Sort(parts)
	return joined(parts)
}

func (s Selector) append(b []byte) []byte {
	if s.Nothing {
		return append(b, 1)
	}
	b = append(b, 0)
	for _, c := range clauses(s.Requirements) {
		b = c.append(b)
	}
	return b
}

func (t PodTerm) append(b []byte) []byte {
	b = appendString(b, t.TopologyKey)
	if t.AllNamespaces {
		b = append(b, 1)
	} else {
		ns := slices.Clone(t.Namespaces)
		slices.Sort(ns)
		b = appendString(append(b, 0), joined(slices.Compact(ns)))
	}
	return t.Selector.append(b)
}

// formsOf returns the spec's forms, the one that keeps most preferences first.
func (v *solver) formsOf(sp *spec) []form {
	policy := v.policyOf(sp)
	if sp.src.Preferences == nil && v.s.poolPolicies() {
		return v.s.formsByPool(sp, policy)
	}
	return v.s.formsUnder(sp, policy)
}

func (s *State) formsUnder(sp *spec, policy Policy) []form {
	if sp.forms[policy] == nil {
		sp.forms[policy] = s.makeForms(sp, policy, nil)
	}
	return sp.forms[policy]
}

// respected makes what a form gives up under Respect dearer than any node.
const respected = 1_000_000

// formsByPool returns the forms of a spec whose preferences count by the policy of
// the pool: each form is confined to the pools of one policy, and what it gives up
// is worth what that policy says. Nodes of nobody belong to those of the rest.
func (s *State) formsByPool(sp *spec, rest Policy) []form {
	if f := sp.byPool[rest]; f != nil {
		return f
	}
	if f := s.formsUnder(sp, Respect); len(f) == 1 {
		return f // it has no preferences
	}
	var names [Ignore + 1][]string
	var others []string
	for i := range s.pools {
		if own := s.pools[i].Preferences; own != nil && *own != rest {
			names[*own] = append(names[*own], s.pools[i].Name)
			others = append(others, s.pools[i].Name)
		}
	}
	var forms []form
	for policy := range names {
		where := Requirement{Key: LabelPool, Operator: In, Values: names[policy]}
		if Policy(policy) == rest {
			where = Requirement{Key: LabelPool, Operator: NotIn, Values: others}
		} else if len(names[policy]) == 0 {
			continue
		}
		from := len(forms)
		forms = append(forms, s.makeForms(sp, Policy(policy), []Requirement{where})...)
		if Policy(policy) == Respect {
			for i := from; i < len(forms); i++ {
				forms[i].lost *= respected
			}
		}
	}
	slices.SortStableFunc(forms, func(a, b form) int { return cmp.Compare(a.lost, b.lost) })
	sp.byPool[rest] = forms
	return forms
}

// poolPolicies reports whether some pool has a policy of its own.
func (s *State) poolPolicies() bool {
	return slices.ContainsFunc(s.pools, func(p Pool) bool { return p.Preferences != nil })
}

// priced reports whether the forms of a batch compete by what they give up.
func (v *solver) priced(b *batch) bool {
	return v.policyOf(b.spec) == Priced || b.spec.src.Preferences == nil && v.s.poolPolicies()
}

// weighs reports whether all forms of a batch are for the same pools and each may be
// given up for the next: what the last one costs at least bounds what any does.
func (v *solver) weighs(b *batch) bool {
	return v.policyOf(b.spec) == Priced && (b.spec.src.Preferences != nil || !v.s.poolPolicies())
}

// makeForms returns the forms of a spec on nodes that meet where. The order in which
// preferences are given up is the documented one under Respect and by weight under
// Priced.
func (s *State) makeForms(sp *spec, policy Policy, where []Requirement) []form {
	soft := s.softTaints > 0
	src := *sp.src
	var hard, anyway []Spread
	for _, c := range src.Spread {
		if c.ScheduleAnyway {
			anyway = append(anyway, c)
		} else {
			hard = append(hard, c)
		}
	}
	src.Spread = hard
	type kept struct {
		terms  []Preference
		aff    []WeightedPodTerm
		anti   []WeightedPodTerm
		spread []Spread
		taints bool
	}
	k := kept{terms: heaviestFirst(src.Preferred, func(p Preference) (int32, string) {
		var b []byte
		for _, c := range clauses(p.Requirements) {
			b = c.append(b)
		}
		return p.Weight, string(b)
	}), spread: anyway, taints: soft}
	weigh := func(t WeightedPodTerm) (int32, string) { return t.Weight, string(t.PodTerm.append(nil)) }
	k.aff = heaviestFirst(src.PreferredPodAffinity, weigh)
	k.anti = heaviestFirst(src.PreferredPodAntiAffinity, weigh)
	slices.SortStableFunc(k.spread, func(a, b Spread) int {
		return strings.Compare(string(a.Selector.append([]byte(a.TopologyKey))), string(b.Selector.append([]byte(b.TopologyKey))))
	})
	if policy == Ignore {
		k = kept{}
	}
	var forms []form
	lost := int64(0)
	emit := func() {
		f := form{lost: lost, affinity: slices.Clone(src.PodAffinity), anti: src.PodAntiAffinity}
		ps := src
		rule := hardTaints
		if k.taints {
			rule = allTaints
		}
		ps.NodeSelector = slices.Concat(src.NodeSelector, where)
		for i, t := range k.terms {
			// Respect holds one node preference at a time, as its documentation says.
			if i == 0 || policy != Respect {
				ps.NodeSelector = append(ps.NodeSelector, t.Requirements...)
			}
		}
		f.filter = s.filters.acquire(newFilter(&ps, rule, true))
		for _, t := range k.aff {
			f.affinity = append(f.affinity, t.PodTerm)
		}
		for _, t := range k.anti {
			f.preferred = append(f.preferred, t.PodTerm)
		}
		for _, c := range append(slices.Clone(hard), k.spread...) {
			in := PodSpec{Tolerations: src.Tolerations}
			if !c.IgnoreAffinity {
				in.NodeSelector, in.Affinity = src.NodeSelector, src.Affinity
			}
			rule := noTaints
			if c.HonorTaints {
				rule = hardTaints
			}
			f.spreads = append(f.spreads, spreadForm{c, s.filters.acquire(newFilter(&in, rule, false))})
		}
		forms = append(forms, f)
	}
	emit()
	giveUp := func(kind int) {
		switch kind {
		case 0:
			lost += int64(k.aff[0].Weight)
			k.aff = k.aff[1:]
		case 1:
			lost += int64(k.anti[0].Weight)
			k.anti = k.anti[1:]
		case 2:
			lost += int64(k.terms[0].Weight)
			k.terms = k.terms[1:]
		case 3:
			lost += softSpreadWeight
			k.spread = k.spread[1:]
		case 4:
			lost += softTaintWeight
			k.taints = false
		}
		emit()
	}
	if policy == Priced {
		// The lightest goes first, so lists run the other way.
		slices.Reverse(k.aff)
		slices.Reverse(k.anti)
		slices.Reverse(k.terms)
	}
	for {
		kind, least := -1, int64(0)
		for i, w := range [...]int64{headWeight(k.aff, weightOf), headWeight(k.anti, weightOf), headWeight(k.terms, func(p Preference) int32 { return p.Weight }), softSpreadWeight * int64(min(len(k.spread), 1)), softTaintWeight * b2i(k.taints)} {
			if w > 0 && (kind < 0 || policy == Priced && w < least) {
				kind, least = i, w
			}
		}
		if kind < 0 {
			break
		}
		giveUp(kind)
	}
	return forms
}

// policyOf returns the policy for the preferences of a spec's pods.
func (v *solver) policyOf(sp *spec) Policy {
	if p := sp.src.Preferences; p != nil {
		return *p
	}
	return v.o.Preferences
}

func weightOf(t WeightedPodTerm) int32 { return t.Weight }

// headWeight is the weight of a list's head, at least one, or zero if it is empty.
func headWeight[T any](list []T, weight func(T) int32) int64 {
	if len(list) == 0 {
		return 0
	}
	return int64(max(weight(list[0]), 1))
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// heaviestFirst sorts a copy by weight, then content.
func heaviestFirst[T any](list []T, of func(T) (int32, string)) []T {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b T) int {
		wa, ka := of(a)
		wb, kb := of(b)
		return cmp.Or(cmp.Compare(wb, wa), strings.Compare(ka, kb))
	})
	return list
}

// dropForms gives up the filters of the spec's forms.
func (s *State) dropForms(sp *spec) {
	for _, forms := range slices.Concat(sp.forms[:], sp.byPool[:]) {
		for _, f := range forms {
			s.releaseFilter(f.filter)
			for _, c := range f.spreads {
				s.releaseFilter(c.include)
			}
			if f.tallies == nil {
				continue
			}
			for _, list := range [...][]*tally{f.tallies.spreads, f.tallies.affinity, f.tallies.anti, f.tallies.preferred} {
				for _, t := range list {
					s.releaseTally(t)
				}
			}
		}
	}
	clear(sp.forms[:])
	clear(sp.byPool[:])
}
