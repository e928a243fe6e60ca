package provision

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// NewClaim writes a planned node as a NodeClaim of its pool.
func NewClaim(pool *karpenter.NodePool, class *aws.EC2NodeClass, node *pack.NewNode) *karpenter.NodeClaim {
	t := pool.Spec.Template
	ref := t.Spec.NodeClassRef
	block := true
	claim := &karpenter.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: pool.Name + "-",
			Labels:       map[string]string{},
			Annotations:  map[string]string{},
			Finalizers:   []string{karpenter.Finalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: karpenter.GroupVersion.String(), Kind: "NodePool",
				Name: pool.Name, UID: pool.UID, BlockOwnerDeletion: &block,
			}},
		},
		Spec: karpenter.NodeClaimSpec{
			Taints:                 t.Spec.Taints,
			StartupTaints:          t.Spec.StartupTaints,
			Requirements:           requirements(node.Requirements),
			Resources:              karpenter.ResourceRequirements{Requests: cluster.ResourceList(node.Requests)},
			NodeClassRef:           &karpenter.NodeClassReference{Group: ref.Group, Kind: ref.Kind, Name: ref.Name},
			TerminationGracePeriod: t.Spec.TerminationGracePeriod,
			ExpireAfter:            t.Spec.ExpireAfter,
		},
	}
	maps.Copy(claim.Labels, t.Labels)
	maps.Copy(claim.Labels, node.Labels)
	claim.Labels[karpenter.LabelNodePool] = pool.Name
	claim.Labels[ref.Group+"/"+strings.ToLower(ref.Kind)] = ref.Name
	maps.Copy(claim.Annotations, t.Annotations)
	delete(claim.Annotations, coppice.AnnotationFleet) // a template's would be on every claim
	claim.Annotations[karpenter.AnnotationNodePoolHash] = pool.Hash()
	claim.Annotations[karpenter.AnnotationNodePoolHashVersion] = karpenter.NodePoolHashVersion
	claim.Annotations[aws.AnnotationEC2NodeClassHash] = class.Hash()
	claim.Annotations[aws.AnnotationEC2NodeClassHashVersion] = aws.EC2NodeClassHashVersion
	if node.Relaxed {
		claim.Annotations[karpenter.AnnotationMinValuesRelaxed] = "true"
	}
	return claim
}

func requirements(in []pack.Requirement) []karpenter.NodeSelectorRequirementWithMinValues {
	out := make([]karpenter.NodeSelectorRequirementWithMinValues, 0, len(in))
	for _, r := range in {
		q := karpenter.NodeSelectorRequirementWithMinValues{
			Key: r.Key, Operator: corev1.NodeSelectorOperator(r.Operator.String()), Values: r.Values,
		}
		if r.MinValues > 0 {
			q.MinValues = &r.MinValues
		}
		out = append(out, q)
	}
	return out
}
