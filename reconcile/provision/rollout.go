package provision

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// rollout says in a condition how many of the pool's nodes are not as it declares.
// It is true at once when the pool or its class changes, before any other
// controller has looked at the claims, so that whoever waits for a change to be
// rolled out doesn't see it done before it has begun. A claim that is being removed
// counts until it is gone. Where the pool wants drift approved, it names what would be.
func rollout(pool *karpenter.NodePool, class *aws.EC2NodeClass, nodes []cluster.Node, o sugar.Options) {
	want := declaration{pool: cluster.Declare(pool)}
	if class != nil {
		want.classHash = class.Hash()
	}
	total, drifted := len(nodes), 0
	for _, n := range nodes {
		if want.differs(n.Claim) {
			drifted++
		}
	}
	c := metav1.Condition{
		Type: karpenter.ConditionNodeClaimsDrifted, Status: metav1.ConditionFalse, Reason: "UpToDate",
		Message: fmt.Sprintf("%d NodeClaims are as declared", total), ObservedGeneration: pool.Generation,
	}
	if drifted > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, "RolloutPending"
		c.Message = fmt.Sprintf("%d of %d NodeClaims are not as declared", drifted, total)
		if target := cluster.Target(pool, class); o.DriftApproval != "" && o.DriftApproval != target {
			c.Reason = "AwaitingApproval"
			c.Message += fmt.Sprintf("; to approve their replacement set driftApproval to %q", target)
		}
	}
	apimeta.SetStatusCondition(&pool.Status.Conditions, c)
}

// declaration is what a pool and its class ask of a claim.
type declaration struct {
	pool      cluster.Declaration
	classHash string // "" without a class
}

// differs reports whether a claim isn't what its pool and class would make today.
// What has to be asked of the cloud is in the claim's own condition.
func (d declaration) differs(claim *karpenter.NodeClaim) bool {
	a := claim.Annotations
	return apimeta.IsStatusConditionTrue(claim.Status.Conditions, karpenter.ConditionDrifted) || d.pool.Drift(claim) != "" ||
		d.classHash != "" && a[aws.AnnotationEC2NodeClassHashVersion] == aws.EC2NodeClassHashVersion && a[aws.AnnotationEC2NodeClassHash] != d.classHash
}

// registration says in a condition whether the pool's last launches became Nodes.
// A change of the pool or its class may be the cure, so that an unhealthy pool is
// unknown again after it; a healthy one stays healthy.
func (r *pools) registration(pool *karpenter.NodePool, class *aws.EC2NodeClass) {
	const condition = karpenter.ConditionNodeRegistrationHealthy
	had := apimeta.FindStatusCondition(pool.Status.Conditions, condition)
	var generation int64
	if class != nil {
		generation = class.Generation
	}
	changed := had != nil && (had.ObservedGeneration != pool.Generation || pool.Status.NodeClassObservedGeneration != generation)
	pool.Status.NodeClassObservedGeneration = generation
	if changed {
		r.health.Reset(pool.Name)
	}
	if had != nil && (had.Status == metav1.ConditionTrue || had.Status == metav1.ConditionFalse && !changed) {
		r.health.Recall(pool.Name, had.Status == metav1.ConditionTrue)
	}
	c := metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: "AwaitingReconciliation", Message: "no launch yet", ObservedGeneration: pool.Generation}
	if healthy, known := r.health.Healthy(pool.Name); known && healthy {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, condition, ""
	} else if known {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "RegistrationFailed", "of the last launches about half never became Nodes; see the events of NodeClaims"
	}
	apimeta.SetStatusCondition(&pool.Status.Conditions, c)
}
