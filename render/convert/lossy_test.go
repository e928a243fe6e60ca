package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNothingIsDropped has sources that say more than v1 takes. Each is refused at the
// places that it concerns, and comes to what is wanted if that may be left out.
func TestNothingIsDropped(t *testing.T) {
	const (
		provisioner = "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec: "
		pool        = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: "
		class       = "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: a}\nspec: "
	)
	list := func(items ...any) []any { return items }
	type m = map[string]any
	for name, tc := range map[string]struct {
		why, in string
		lossy   []string // the paths that are refused
		field   string
		at      []string
		want    any
	}{
		"labels": {
			why: "the template's stay", in: pool + "{labels: {x: b}, template: {metadata: {labels: {x: a}}}}",
			lossy: []string{"spec.labels"}, at: []string{"spec", "template", "metadata", "labels"}, want: m{"x": "a"},
		},
		"the same labels": {
			why: "under their names of v1 they are the same", in: pool + "{labels: {beta.kubernetes.io/arch: arm64}, template: {metadata: {labels: {kubernetes.io/arch: arm64}}}}",
			at: []string{"spec", "template", "metadata", "labels"}, want: m{"kubernetes.io/arch": "arm64"},
		},
		"requirements and taints": {
			why: "the template's stay", in: pool + "{requirements: [], taints: [{key: b, effect: NoSchedule}], template: {spec: {requirements: [{key: a, operator: Exists}], taints: []}}}",
			lossy: []string{"spec.requirements", "spec.taints"}, at: []string{"spec", "template", "spec", "requirements"}, want: list(m{"key": "a", "operator": "Exists"}),
		},
		"providerRef": {
			why: "it names another class", in: pool + "{providerRef: {name: b}, template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: a}}}}",
			lossy: []string{"spec.providerRef.name"}, at: []string{"spec", "template", "spec", "nodeClassRef", "name"}, want: "a",
		},
		"limits": {
			why: "what stands beside limits.resources stays", in: pool + `{limits: {resources: {cpu: "4", memory: 1Gi}, cpu: "5", nodes: 3}}`,
			lossy: []string{"spec.limits.resources.cpu"}, at: []string{"spec", "limits"}, want: m{"cpu": "5", "memory": "1Gi", "nodes": int64(3)},
		},
		"two old names": {
			why: "the first in order wins", in: provisioner + `{annotations: {karpenter.sh/do-not-evict: "a", karpenter.sh/do-not-consolidate: "b"}}`,
			lossy: []string{`spec.annotations["karpenter.sh/do-not-evict"]`}, at: []string{"spec", "template", "metadata", "annotations"}, want: m{"karpenter.sh/do-not-disrupt": "b"},
		},
		"an old name beside the new": {
			why: "the new name wins", in: pool + `{template: {metadata: {labels: {beta.kubernetes.io/os: a, kubernetes.io/os: b}}}}`,
			lossy: []string{`spec.template.metadata.labels["beta.kubernetes.io/os"]`}, at: []string{"spec", "template", "metadata", "labels"}, want: m{"kubernetes.io/os": "b"},
		},
		"lists in a selector": {
			why: "each combination selects", in: class + `{amiSelector: {"aws::name": "x, y", "aws::owners": self, env: prod}}`,
			field: "nodeClasses", at: []string{"spec", "amiSelectorTerms"}, want: list(
				m{"name": "x", "owner": "self", "tags": m{"env": "prod"}},
				m{"name": "y", "owner": "self", "tags": m{"env": "prod"}}),
		},
		"tags with commas": {
			why: "a value of v1 is one", in: class + `{subnetSelector: {Name: "a,b"}}`,
			field: "nodeClasses", at: []string{"spec", "subnetSelectorTerms"}, want: list(m{"tags": m{"Name": "a"}}, m{"tags": m{"Name": "b"}}),
		},
		"ids and tags": {
			why: "terms would select what has either", in: class + `{subnetSelector: {aws-ids: "subnet-1,subnet-2", Name: a}}`,
			lossy: []string{"spec.subnetSelector"}, field: "nodeClasses", at: []string{"spec", "subnetSelectorTerms"}, want: list(m{"id": "subnet-1"}, m{"id": "subnet-2"}),
		},
		"too many combinations": {
			why: "36 terms", in: class + `{subnetSelector: {a: "1,2,3,4,5,6", b: "1,2,3,4,5,6"}}`,
			lossy: []string{"spec.subnetSelector.b"}, field: "nodeClasses", at: []string{"spec", "subnetSelectorTerms"},
			want: list(m{"tags": m{"a": "1"}}, m{"tags": m{"a": "2"}}, m{"tags": m{"a": "3"}}, m{"tags": m{"a": "4"}}, m{"tags": m{"a": "5"}}, m{"tags": m{"a": "6"}}),
		},
		"selector and terms": {
			why: "the terms of v1 stay", in: class + `{subnetSelector: {a: b}, subnetSelectorTerms: [{id: subnet-1}]}`,
			lossy: []string{"spec.subnetSelector"}, field: "nodeClasses", at: []string{"spec", "subnetSelectorTerms"}, want: list(m{"id": "subnet-1"}),
		},
		"a release of Bottlerocket": {
			why: "an alias takes it", in: `{"nodegroupName": "a", "amiType": "BOTTLEROCKET_x86_64", "releaseVersion": "1.20.4-1a2b3c4d"}`,
			field: "nodeClasses", at: []string{"spec", "amiSelectorTerms"}, want: list(m{"alias": "bottlerocket@v1.20.4"}),
		},
		"a release of Windows": {
			why: "an alias has the latest alone", in: `{"nodegroupName": "a", "amiType": "WINDOWS_CORE_2022_x86_64", "releaseVersion": "1.34-2026.01.13"}`,
			lossy: []string{"releaseVersion"}, field: "nodeClasses", at: []string{"spec", "amiSelectorTerms"}, want: list(m{"alias": "windows2022@latest"}),
		},
		"a policy of several types": {
			why: "a pool has no price, no weights and one class", in: `{"AutoScalingGroups": [{"AutoScalingGroupName": "a", "MixedInstancesPolicy": {
				"InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0, "SpotMaxPrice": "0.10"},
				"LaunchTemplate": {"Overrides": [
					{"InstanceType": "m6i.large", "WeightedCapacity": "1"},
					{"InstanceType": "m6i.xlarge", "WeightedCapacity": "2"},
					{"InstanceType": "m7g.large", "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-2"}}]}}}]}`,
			lossy: []string{
				"AutoScalingGroups[0].MixedInstancesPolicy.InstancesDistribution.SpotMaxPrice",
				"AutoScalingGroups[0].MixedInstancesPolicy.LaunchTemplate.Overrides[1].WeightedCapacity",
				"AutoScalingGroups[0].MixedInstancesPolicy.LaunchTemplate.Overrides[2].LaunchTemplateSpecification",
			},
			at: []string{"spec", "template", "spec", "nodeClassRef", "name"}, want: "a",
		},
		"how types are chosen": {
			why: "an order, and what isn't known, are refused; what has no effect is not", in: `{"AutoScalingGroups": [{"AutoScalingGroupName": "a",
				"AvailabilityZoneDistribution": {"CapacityDistributionStrategy": "balanced-best-effort"},
				"AvailabilityZoneImpairmentPolicy": {"ZonalShiftEnabled": true, "ImpairedZoneHealthCheckBehavior": "IgnoreUnhealthy"},
				"CapacityReservationSpecification": {"CapacityReservationPreference": "default"},
				"MixedInstancesPolicy": {
				"Unheard": 1,
				"InstancesDistribution": {"OnDemandAllocationStrategy": "prioritized", "SpotAllocationStrategy": "lowest-price", "SpotInstancePools": 2, "Unheard": "of"},
				"LaunchTemplate": {"Unheard": {}, "Overrides": [{"InstanceType": "m6i.large"}]}}}]}`,
			lossy: []string{
				"AutoScalingGroups[0].AvailabilityZoneImpairmentPolicy",
				"AutoScalingGroups[0].MixedInstancesPolicy.Unheard",
				"AutoScalingGroups[0].MixedInstancesPolicy.InstancesDistribution.OnDemandAllocationStrategy",
				"AutoScalingGroups[0].MixedInstancesPolicy.InstancesDistribution.Unheard",
				"AutoScalingGroups[0].MixedInstancesPolicy.LaunchTemplate.Unheard",
			},
			at: []string{"spec", "template", "spec", "nodeClassRef", "name"}, want: "a",
		},
		"parts of a node group": {
			why: "what is inside of what is read counts too", in: `{"nodegroupName": "a", "nodeRepairConfig": {"enabled": true},
				"scalingConfig": {"maxSize": 3, "unheard": 1}, "updateConfig": {"maxUnavailable": 1, "unheard": "of"}}`,
			lossy: []string{"nodeRepairConfig", "scalingConfig.unheard", "updateConfig.unheard"},
			at:    []string{"spec", "limits"}, want: m{"nodes": int64(3)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			refusals := func(o Options) (*Result, []string) {
				result, found := Convert([]Source{{"a.yaml", []byte(tc.in)}}, o)
				var paths []string
				for _, f := range found {
					if f.Code == CodeLossy {
						paths = append(paths, f.Path)
					}
				}
				return result, paths
			}
			if _, paths := refusals(given()); !cmp.Equal(tc.lossy, paths) {
				t.Errorf("%s: refused at %q, want %q", tc.why, paths, tc.lossy)
			}
			o := given()
			o.AllowLossy = true
			result, _ := refusals(o)
			if tc.field == "" {
				tc.field = "nodePools"
			}
			var got any = result.objects[tc.field]["a"]
			for _, name := range tc.at {
				got = got.(map[string]any)[name]
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s:\n%s", tc.why, diff)
			}
		})
	}
}
