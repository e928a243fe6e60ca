package disrupt

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestAnotherEnginesDriftStands(t *testing.T) {
	const theirs = "v3"
	for name, tc := range map[string]struct {
		why         string
		pool, class string // versions of the hashes
		drifted     string // what the condition says, "" for none
		reason      string // what we find
		early       bool
	}{
		"as declared, theirs":       {"our hash isn't known yet", theirs, theirs, "", "", true},
		"template, then an image":   {"the pool's controller must still see NodePoolDrifted", theirs, theirs, "NodePoolDrifted", "AMIDrift", true},
		"template, nothing by us":   {"or the claim would be taken for up to date", theirs, theirs, "NodePoolDrifted", "", true},
		"class isn't ours yet":      {"the class's controller asks the same condition", karpenter.NodePoolHashVersion, theirs, "NodeClassDrift", "AMIDrift", true},
		"an image that is new":      {"nothing of theirs is lost", theirs, theirs, "", "AMIDrift", false},
		"ours, drift has ended":     {"the condition goes", karpenter.NodePoolHashVersion, aws.EC2NodeClassHashVersion, "AMIDrift", "", false},
		"ours, for another reason":  {"the condition follows", karpenter.NodePoolHashVersion, aws.EC2NodeClassHashVersion, "NodePoolDrifted", "AMIDrift", false},
		"a claim without any hash":  {"it is nobody's", "", "", "", "", false},
		"without hash, but drifted": {"its condition is ours", "", "", "AMIDrift", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
			if tc.pool != "" {
				c.Annotations[karpenter.AnnotationNodePoolHashVersion] = tc.pool
			}
			if tc.class != "" {
				c.Annotations[aws.AnnotationEC2NodeClassHashVersion] = tc.class
			}
			if tc.drifted != "" {
				apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: karpenter.ConditionDrifted, Status: metav1.ConditionTrue, Reason: tc.drifted})
			}
			if got := tooEarly(c, tc.reason); got != tc.early {
				t.Errorf("tooEarly() = %v, want %v: %s", got, tc.early, tc.why)
			}
		})
	}
}
