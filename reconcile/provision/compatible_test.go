package provision

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestCompatible(t *testing.T) {
	need := func(key string, op corev1.NodeSelectorOperator, values ...string) karpenter.NodeSelectorRequirementWithMinValues {
		return karpenter.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
	}
	machine := func(name, family, arch string) cloud.InstanceType {
		return cloud.InstanceType{
			Name: name, Labels: map[string]string{aws.LabelInstanceFamily: family, corev1.LabelArchStable: arch},
			Offerings: []cloud.Offering{{CapacityType: cloud.OnDemand, Zone: "z1"}}, // sold out
		}
	}
	types := []cloud.InstanceType{machine("m5.large", "m5", "amd64"), machine("m6g.large", "m6g", "arm64")}
	tests := map[string]struct {
		why    string
		types  []cloud.InstanceType
		need   []karpenter.NodeSelectorRequirementWithMinValues
		labels map[string]string
		want   string
	}{
		"some":      {"what is sold out counts", types, []karpenter.NodeSelectorRequirementWithMinValues{need(aws.LabelInstanceFamily, "In", "m5")}, map[string]string{"team": "a"}, ""},
		"two meet":  {"each is to blame", types, []karpenter.NodeSelectorRequirementWithMinValues{need(aws.LabelInstanceFamily, "In", "m5"), need(corev1.LabelArchStable, "In", "arm64")}, nil, "of karpenter.k8s.aws/instance-family there would be 1, without what is required of kubernetes.io/arch there would be 1"},
		"misspelt":  {"one is", types, []karpenter.NodeSelectorRequirementWithMinValues{need(aws.LabelInstanceFamily, "In", "m55"), need(corev1.LabelArchStable, "In", "arm64")}, nil, "none of the 2 instance types of EC2NodeClass default meets the requirements; without what is required of karpenter.k8s.aws/instance-family there would be 1"},
		"by label":  {"a template's label is a requirement", types, nil, map[string]string{corev1.LabelTopologyZone: "z9"}, "of topology.kubernetes.io/zone there would be 2"},
		"hopeless":  {"two are wrong", types, []karpenter.NodeSelectorRequirementWithMinValues{need(aws.LabelInstanceFamily, "In", "x"), need(corev1.LabelArchStable, "In", "s390x")}, nil, "no single one of them is to blame: karpenter.k8s.aws/instance-family, kubernetes.io/arch"},
		"none sold": {"the class's zones have none", nil, nil, nil, "EC2NodeClass default offers no instance type"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			told := events.NewFakeRecorder(10)
			r := &pools{events: told}
			pool := &karpenter.NodePool{}
			pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Name: "default"}
			pool.Spec.Template.Spec.Requirements, pool.Spec.Template.Labels = tc.need, tc.labels
			again := r.compatible(pool, tc.types)
			c := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionNoCompatibleInstanceTypes)
			if tc.want == "" {
				if c != nil || again != 0 || len(told.Events) > 0 {
					t.Fatalf("condition %v, again after %s, %d events (%s)", c, again, len(told.Events), tc.why)
				}
				return
			}
			if c == nil || !strings.Contains(c.Message, tc.want) || again != compatibleRecheck {
				t.Fatalf("condition %v, again after %s, want %q (%s)", c, again, tc.want, tc.why)
			}
			if e := <-told.Events; !strings.Contains(e, tc.want) {
				t.Errorf("event %q", e)
			}
			if r.compatible(pool, tc.types); len(told.Events) > 0 {
				t.Error("it is told again although nothing changed")
			}
			// It ends with the trouble.
			pool.Spec.Template.Spec.Requirements, pool.Spec.Template.Labels = nil, nil
			if again := r.compatible(pool, types); again != time.Duration(0) || len(pool.Status.Conditions) > 0 {
				t.Errorf("conditions %v stay, again after %s", pool.Status.Conditions, again)
			}
		})
	}
}
