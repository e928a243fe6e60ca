package cloud

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestAcceptable(t *testing.T) {
	offering := func(market, zone string, price int64, available bool) Offering {
		return Offering{CapacityType: market, Zone: zone, ZoneID: zone + "-id", MicroUSD: price, Available: available}
	}
	types := []InstanceType{
		{Name: "big", Labels: map[string]string{aws.LabelInstanceCPU: "8", "gpu": "a100"}, Offerings: []Offering{offering(Spot, "z1", 30, true), offering(OnDemand, "z1", 90, true)}},
		{Name: "mid", Labels: map[string]string{aws.LabelInstanceCPU: "4"}, Offerings: []Offering{offering(Spot, "z2", 20, false), offering(OnDemand, "z2", 40, true)}},
		{Name: "old", Labels: map[string]string{aws.LabelInstanceCPU: "2"}, Offerings: []Offering{offering(OnDemand, "z1", 20, true), offering(OnDemand, "z2", 25, true)}},
	}
	need := func(key string, op corev1.NodeSelectorOperator, values ...string) karpenter.NodeSelectorRequirementWithMinValues {
		return karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
	}
	tests := map[string]struct {
		why  string
		need []karpenter.NodeSelectorRequirementWithMinValues
		want []string
	}{
		"all":          {"by price, without what can't be had", nil, []string{"old 20 25", "big 30 90", "mid 40"}},
		"market":       {"spot that is to be had", []karpenter.NodeSelectorRequirementWithMinValues{need(karpenter.LabelCapacityType, "In", Spot)}, []string{"big 30"}},
		"zone":         {"z2 alone", []karpenter.NodeSelectorRequirementWithMinValues{need(corev1.LabelTopologyZone, "In", "z2")}, []string{"old 25", "mid 40"}},
		"old zone key": {"the beta label means the same", []karpenter.NodeSelectorRequirementWithMinValues{need(corev1.LabelFailureDomainBetaZone, "In", "z2")}, []string{"old 25", "mid 40"}},
		"zone id":      {"z1 by its id", []karpenter.NodeSelectorRequirementWithMinValues{need(aws.LabelTopologyZoneID, "NotIn", "z2-id")}, []string{"old 20", "big 30 90"}},
		"number":       {"more than 2 and fewer than 8 cpus", []karpenter.NodeSelectorRequirementWithMinValues{need(aws.LabelInstanceCPU, "Gt", "2"), need(aws.LabelInstanceCPU, "Lt", "8")}, []string{"mid 40"}},
		"has not":      {"types without the label", []karpenter.NodeSelectorRequirementWithMinValues{need("gpu", "DoesNotExist")}, []string{"old 20 25", "mid 40"}},
		"has":          {"types with it", []karpenter.NodeSelectorRequirementWithMinValues{need("gpu", "Exists")}, []string{"big 30 90"}},
		"a pool's own": {"no type carries it, so it says nothing of types", []karpenter.NodeSelectorRequirementWithMinValues{need("team", "In", "a")}, []string{"old 20 25", "big 30 90", "mid 40"}},
		"by name":      {"two of three", []karpenter.NodeSelectorRequirementWithMinValues{need(corev1.LabelInstanceTypeStable, "In", "mid", "big")}, []string{"big 30 90", "mid 40"}},
		"impossible":   {"two requirements for one key join", []karpenter.NodeSelectorRequirementWithMinValues{need(corev1.LabelTopologyZone, "In", "z1"), need(corev1.LabelTopologyZone, "In", "z2")}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, x := range Acceptable(types, tc.need) {
				text := x.Name
				for _, o := range x.Offerings {
					text += fmt.Sprintf(" %d", o.MicroUSD)
				}
				got = append(got, text)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("Acceptable() = %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
	if got := Compatible(types, tests["market"].need); len(got) != 2 || got[0].Name != "mid" {
		t.Errorf("Compatible() = %v, want spot that can't be had now too", got)
	}
	if len(types[1].Offerings) != 2 {
		t.Error("the input was changed")
	}
}
