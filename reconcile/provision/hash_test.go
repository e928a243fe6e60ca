package provision

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestRestamped(t *testing.T) {
	for name, tc := range map[string]struct {
		why           string
		version, hash string
		drifted       string
		want          string // the hash that it carries then, "" for no change
	}{
		"karpenter's": {"a hash of another algorithm says nothing, the next change must", "v3", "123", "", "ours"},
		"drifted":     {"a node that is to be replaced is still to be replaced", "v3", "123", "NodePoolDrifted", "123"},
		"other drift": {"an image says nothing about the template", "v3", "123", "AMIDrift", "ours"},
		"our own":     {"a hash of ours that differs is drift, and stays", karpenter.NodePoolHashVersion, "old", "", ""},
		"without":     {"a claim of somebody's own has no hash and gets none", "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &karpenter.NodeClaim{}
			if tc.version != "" {
				claim.Annotations = map[string]string{karpenter.AnnotationNodePoolHash: tc.hash, karpenter.AnnotationNodePoolHashVersion: tc.version}
			}
			if tc.drifted != "" {
				claim.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: tc.drifted}}
			}
			got := restamped(claim, "ours")
			if tc.want == "" {
				if got != nil {
					t.Errorf("it is stamped: %v", got.Annotations)
				}
				return
			}
			if got == nil || got.Annotations[karpenter.AnnotationNodePoolHash] != tc.want || got.Annotations[karpenter.AnnotationNodePoolHashVersion] != karpenter.NodePoolHashVersion {
				t.Errorf("it is %+v", got)
			}
			if again := restamped(got, "ours"); again != nil {
				t.Error("it is stamped twice")
			}
		})
	}
}
