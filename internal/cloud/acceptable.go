package cloud

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Acceptable returns the types that meet the requirements, each with the offerings
// that do and are available, the cheapest first; types without an offering are
// left out. A requirement for a label that no type carries is a pool's own and
// doesn't narrow them. The input isn't changed.
func Acceptable(types []InstanceType, requirements []karpenter.NodeSelectorRequirementWithMinValues) []InstanceType {
	return matching(types, requirements, func(o Offering) bool { return o.Available })
}

// Compatible is Acceptable with the offerings that can't be had just now.
func Compatible(types []InstanceType, requirements []karpenter.NodeSelectorRequirementWithMinValues) []InstanceType {
	return matching(types, requirements, func(Offering) bool { return true })
}

func matching(types []InstanceType, requirements []karpenter.NodeSelectorRequirementWithMinValues, wanted func(Offering) bool) []InstanceType {
	sets := Sets(requirements)
	carried := map[string]bool{}
	for _, t := range types {
		for k := range t.Labels {
			carried[k] = true
		}
	}
	var out []InstanceType
	for _, t := range types {
		if !suits(t, sets, carried) {
			continue
		}
		var offerings []Offering
		for _, o := range t.Offerings {
			if wanted(o) && allows(sets, corev1.LabelTopologyZone, o.Zone) &&
				allows(sets, aws.LabelTopologyZoneID, o.ZoneID) &&
				allows(sets, karpenter.LabelCapacityType, o.CapacityType) {
				offerings = append(offerings, o)
			}
		}
		if len(offerings) > 0 {
			t.Offerings = offerings
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b InstanceType) int {
		return cmp.Or(cmp.Compare(a.Offerings[0].MicroUSD, b.Offerings[0].MicroUSD), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Sets joins requirements into what they allow together, by label key.
func Sets(requirements []karpenter.NodeSelectorRequirementWithMinValues) map[string]pack.Set {
	out := make(map[string]pack.Set, len(requirements))
	for _, r := range requirements {
		op, err := pack.ParseOperator(string(r.Operator))
		if err != nil {
			panic(err) // the API server's validation admits no other
		}
		key := karpenter.NormalizedLabel(r.Key)
		set := pack.Requirement{Key: key, Operator: op, Values: r.Values}.Set()
		if have, ok := out[key]; ok {
			set = have.Intersect(set)
		}
		out[key] = set
	}
	return out
}

func allows(sets map[string]pack.Set, key, value string) bool {
	s, ok := sets[key]
	return !ok || s.Has(value)
}

func suits(t InstanceType, sets map[string]pack.Set, carried map[string]bool) bool {
	if !allows(sets, corev1.LabelInstanceTypeStable, t.Name) {
		return false
	}
	for key, s := range sets {
		switch value, ok := t.Labels[key]; {
		case ok && !s.Has(value):
			return false
		case !ok && carried[key] && !s.HasAbsent():
			return false
		}
	}
	return true
}
