package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestDeclarationDrift(t *testing.T) {
	pool := func(alter ...func(*karpenter.NodePool)) *karpenter.NodePool {
		p := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		p.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
		p.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m5.large", "m5.xlarge"}},
		}
		for _, f := range alter {
			f(p)
		}
		return p
	}
	claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{corev1.LabelInstanceTypeStable: "m5.large"},
		Annotations: map[string]string{
			karpenter.AnnotationNodePoolHash: pool().Hash(), karpenter.AnnotationNodePoolHashVersion: karpenter.NodePoolHashVersion,
		},
	}, Status: karpenter.NodeClaimStatus{ProviderID: "aws:///us-west-2a/i-1"}}
	unlaunched := claim.DeepCopy()
	unlaunched.Status.ProviderID, unlaunched.Labels = "", nil
	otherVersion := claim.DeepCopy()
	otherVersion.Annotations[karpenter.AnnotationNodePoolHashVersion] = "v3"
	label := func(p *karpenter.NodePool) { p.Spec.Template.Labels = map[string]string{"team": "a"} }
	tests := map[string]struct {
		why   string
		claim *karpenter.NodeClaim
		pool  *karpenter.NodePool
		want  string
	}{
		"unchanged": {"the pool that it came from", claim, pool(), ""},
		"template":  {"a new label is on no old node", claim, pool(label), NodePoolDrifted},
		"other algorithm": {"hashes of another controller can't be compared",
			otherVersion, pool(label), ""},
		"not launched": {"its labels come with the launch", unlaunched, pool(), ""},
		"limits":       {"limits are no part of a node", claim, pool(func(p *karpenter.NodePool) { p.Spec.Weight = new(int32) }), ""},
		"types": {"m5.large isn't allowed any more", claim, pool(func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements[0].Values = []string{"m5.xlarge"}
		}), RequirementsDrifted},
		"wider": {"still allowed", claim, pool(func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements[0].Values = []string{"m5.large", "c5.large"}
		}), ""},
		"new label asked": {"the node doesn't have it", claim, pool(func(p *karpenter.NodePool) {
			p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, karpenter.NodeSelectorRequirementWithMinValues{Key: "team", Operator: corev1.NodeSelectorOpExists})
		}), RequirementsDrifted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Declare(tc.pool).Drift(tc.claim); got != tc.want {
				t.Errorf("Drift() = %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}
