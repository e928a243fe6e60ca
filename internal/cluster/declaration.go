package cluster

import (
	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Reasons of the condition Drifted that a pool alone gives.
const (
	NodePoolDrifted     = "NodePoolDrifted"
	RequirementsDrifted = "RequirementsDrifted"
)

// Declaration is what a NodePool asks of its claims, ready to be compared with many.
type Declaration struct {
	hash string
	sets map[string]pack.Set
}

// Declare reads a pool.
func Declare(pool *karpenter.NodePool) Declaration {
	return Declaration{pool.Hash(), cloud.Sets(pool.Spec.Template.Spec.Requirements)}
}

// Drift says how a claim differs from what its pool would make today, as a reason of
// the condition Drifted, or "". The template's hash stands for everything but the
// requirements; those are compared with the labels that the launch gave the claim.
func (d Declaration) Drift(claim *karpenter.NodeClaim) string {
	a := claim.Annotations
	// Hashes of another algorithm can't be compared.
	if a[karpenter.AnnotationNodePoolHashVersion] == karpenter.NodePoolHashVersion && a[karpenter.AnnotationNodePoolHash] != d.hash {
		return NodePoolDrifted
	}
	if claim.Status.ProviderID == "" {
		return ""
	}
	for key, set := range d.sets {
		value, has := claim.Labels[key]
		if has && !set.Has(value) || !has && !set.HasAbsent() {
			return RequirementsDrifted
		}
	}
	return ""
}
