package provision

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"

	"github.com/coppice-dev/coppice/internal/cluster"
)

func TestPause(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pool := &karpenter.NodePool{}
	options := sugar.Options{Pause: &sugar.Pause{Until: "2026-03-01T13:00:00Z", Author: "ops", Reason: "sale"}}
	if left := pause(pool, options, at); left != time.Hour {
		t.Errorf("it lasts for %v, want an hour", left)
	}
	c := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionPaused)
	if want := "no node is taken away voluntarily until 2026-03-01T13:00:00Z by ops: sale"; c == nil || c.Status != "True" || c.Message != want {
		t.Errorf("%+v, want the message %q", c, want)
	}
	if left := pause(pool, options, at.Add(time.Hour)); left != 0 || len(pool.Status.Conditions) != 0 {
		t.Errorf("after its end %v are left and the conditions are %+v", left, pool.Status.Conditions)
	}
}

func TestRolloutAwaitsApproval(t *testing.T) {
	pool, class := &karpenter.NodePool{}, &aws.EC2NodeClass{}
	pool.Name = "general"
	claim := &karpenter.NodeClaim{}
	claim.Labels = map[string]string{karpenter.LabelNodePool: "general"}
	claim.Annotations = map[string]string{karpenter.AnnotationNodePoolHash: "old", karpenter.AnnotationNodePoolHashVersion: karpenter.NodePoolHashVersion}
	nodes := []cluster.Node{{Claim: claim}}
	for approval, want := range map[string]string{
		"": "RolloutPending", sugar.ApprovalRequired: "AwaitingApproval", "0123456789": "AwaitingApproval", cluster.Target(pool, class): "RolloutPending",
	} {
		rollout(pool, class, nodes, sugar.Options{DriftApproval: approval})
		if c := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionNodeClaimsDrifted); c == nil || c.Reason != want {
			t.Errorf("approval %q: %+v, want %s", approval, c, want)
		}
	}
	before := cluster.Target(pool, class)
	class.Status.AMIs = []aws.AMI{{ID: "ami-2"}}
	if cluster.Target(pool, class) == before {
		t.Error("another image has the same approval")
	}
}
