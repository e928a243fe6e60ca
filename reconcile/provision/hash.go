package provision

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// stamp writes the pool's hash and its version into the pool's annotations, and
// carries the claims over from another way of hashing, such as Karpenter's: theirs
// can't be compared, and the next change of the pool must drift them. Karpenter does
// the same when it finds our version, so a fleet can be handed over either way
// without the loss of a node.
func (r *pools) stamp(ctx context.Context, pool *karpenter.NodePool) error {
	hash, a := pool.Hash(), pool.Annotations
	if a[karpenter.AnnotationNodePoolHash] == hash && a[karpenter.AnnotationNodePoolHashVersion] == karpenter.NodePoolHashVersion {
		return nil
	}
	if a[karpenter.AnnotationNodePoolHashVersion] != karpenter.NodePoolHashVersion {
		// The claims first: once the pool has the version, nobody looks again.
		var claims karpenter.NodeClaimList
		if err := r.kube.List(ctx, &claims, client.MatchingLabels{karpenter.LabelNodePool: pool.Name}); err != nil {
			return fmt.Errorf("list NodeClaims of NodePool %s: %w", pool.Name, err)
		}
		for i := range claims.Items {
			claim := &claims.Items[i]
			want := restamped(claim, hash)
			if want == nil {
				continue
			}
			if err := r.kube.Patch(ctx, want, client.MergeFrom(claim)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("stamp NodeClaim %s: %w", claim.Name, err)
			}
		}
	}
	want := pool.DeepCopy()
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[karpenter.AnnotationNodePoolHash] = hash
	want.Annotations[karpenter.AnnotationNodePoolHashVersion] = karpenter.NodePoolHashVersion
	if err := r.kube.Patch(ctx, want, client.MergeFrom(pool)); err != nil {
		return fmt.Errorf("stamp NodePool %s: %w", pool.Name, err)
	}
	pool.ObjectMeta = want.ObjectMeta
	return nil
}

// restamped returns the claim with the hash, or nil if it needs none. One that its
// pool's template has put out of date already keeps a hash that isn't the pool's, so
// that it stays drifted; any other reason says that the hash matched, as it is compared
// first.
func restamped(claim *karpenter.NodeClaim, hash string) *karpenter.NodeClaim {
	version, stamped := claim.Annotations[karpenter.AnnotationNodePoolHashVersion]
	if !stamped || version == karpenter.NodePoolHashVersion {
		return nil
	}
	want := claim.DeepCopy()
	want.Annotations[karpenter.AnnotationNodePoolHashVersion] = karpenter.NodePoolHashVersion
	if c := apimeta.FindStatusCondition(claim.Status.Conditions, karpenter.ConditionDrifted); c == nil || c.Status != metav1.ConditionTrue || c.Reason != cluster.NodePoolDrifted {
		want.Annotations[karpenter.AnnotationNodePoolHash] = hash
	}
	return want
}
