package provision

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// compatibleRecheck is how soon a pool without instance types is looked at again: a
// region gets new ones, and nothing tells of it.
const compatibleRecheck = 5 * time.Minute

// compatible says in a condition, and when that is new in an event, that the pool can
// open no node because none of the types that its class offers meets its requirements.
// Types that are only sold out count. It returns when to look again, 0 for a pool that
// has types.
func (r *pools) compatible(pool *karpenter.NodePool, types []cloud.InstanceType) time.Duration {
	why := incompatible(pool, types)
	had := apimeta.FindStatusCondition(pool.Status.Conditions, karpenter.ConditionNoCompatibleInstanceTypes)
	if why == "" {
		apimeta.RemoveStatusCondition(&pool.Status.Conditions, karpenter.ConditionNoCompatibleInstanceTypes)
		return 0
	}
	if had == nil || had.Message != why {
		r.events.Eventf(pool, nil, corev1.EventTypeWarning, karpenter.ConditionNoCompatibleInstanceTypes, "Validate", "%s", why)
	}
	apimeta.SetStatusCondition(&pool.Status.Conditions, metav1.Condition{
		Type: karpenter.ConditionNoCompatibleInstanceTypes, Status: metav1.ConditionTrue, Reason: "RequirementsExcludeAll",
		Message: why, ObservedGeneration: pool.Generation,
	})
	return compatibleRecheck
}

// incompatible says why no type can be a node of the pool, and which requirement would
// let some in if it were gone; "" if some can.
func incompatible(pool *karpenter.NodePool, types []cloud.InstanceType) string {
	class := pool.Spec.Template.Spec.NodeClassRef.Name
	if len(types) == 0 {
		return fmt.Sprintf("EC2NodeClass %s offers no instance type in its zones", class)
	}
	all := poolRequirements(pool)
	if len(cloud.Compatible(types, all)) > 0 {
		return ""
	}
	var keys, ways []string
	for _, q := range all {
		if slices.Contains(keys, q.Key) {
			continue
		}
		keys = append(keys, q.Key)
		others := slices.DeleteFunc(slices.Clone(all), func(o karpenter.NodeSelectorRequirementWithMinValues) bool {
			return karpenter.NormalizedLabel(o.Key) == karpenter.NormalizedLabel(q.Key)
		})
		if n := len(cloud.Compatible(types, others)); n > 0 {
			ways = append(ways, fmt.Sprintf("without what is required of %s there would be %d", q.Key, n))
		}
	}
	text := fmt.Sprintf("none of the %d instance types of EC2NodeClass %s meets the requirements", len(types), class)
	if len(ways) > 0 {
		return kube.ClipNote(text + "; " + strings.Join(ways, ", "))
	}
	return kube.ClipNote(text + ", and no single one of them is to blame: " + strings.Join(keys, ", "))
}

// poolRequirements are what the pool asks of its types, its template's labels included.
func poolRequirements(pool *karpenter.NodePool) []karpenter.NodeSelectorRequirementWithMinValues {
	t := pool.Spec.Template
	out := slices.Clone(t.Spec.Requirements)
	for _, k := range slices.Sorted(maps.Keys(t.Labels)) {
		out = append(out, karpenter.NodeSelectorRequirementWithMinValues{Key: k, Operator: corev1.NodeSelectorOpIn, Values: []string{t.Labels[k]}})
	}
	return out
}
