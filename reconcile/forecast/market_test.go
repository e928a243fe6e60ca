package forecast

import (
	"testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestChoiceOnce works out once what pools have in common, and nothing else.
func TestChoiceOnce(t *testing.T) {
	m := market{types: map[string][]cloud.InstanceType{}, choices: map[string]*plan.Choice{}}
	pool := func(arch string) *karpenter.NodePool {
		p := &karpenter.NodePool{}
		p.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{arch}}}
		return p
	}
	role := func(name string) *aws.EC2NodeClass {
		return &aws.EC2NodeClass{Spec: aws.EC2NodeClassSpec{Role: name, AMISelectorTerms: []aws.AMISelectorTerm{{Alias: "al2023@latest"}}}}
	}
	seen := map[*plan.Choice]string{}
	for _, tt := range []struct {
		name, arch, role, region string
		new                      bool
	}{
		{"first", "amd64", "a", "us-east-1", true},
		{"the same", "amd64", "a", "us-east-1", false},
		{"other requirements", "arm64", "a", "us-east-1", true},
		{"other class", "amd64", "b", "us-east-1", true},
		{"other region", "amd64", "a", "eu-west-1", true},
	} {
		c, err := m.choice(pool(tt.arch), role(tt.role), tt.region)
		if err != nil || c.Types == 0 {
			t.Fatalf("%s: %v, %v", tt.name, c, err)
		}
		if before, known := seen[c]; known == tt.new {
			t.Errorf("%s: worked out %t, as for %q", tt.name, !known, before)
		}
		seen[c] = tt.name
	}
	if len(m.types) != 3 {
		t.Errorf("instance types were made %d times, want once for each class and region", len(m.types))
	}
}
