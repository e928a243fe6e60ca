package disrupt

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Guards are the PodDisruptionBudgets, by namespace.
type Guards map[string][]guard

type guard struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

// NewGuards indexes PodDisruptionBudgets. One whose selector can't be read guards
// nothing, as in the API server.
func NewGuards(list []policyv1.PodDisruptionBudget) Guards {
	g := Guards{}
	for i := range list {
		s, err := metav1.LabelSelectorAsSelector(list[i].Spec.Selector)
		if err != nil {
			continue
		}
		g[list[i].Namespace] = append(g[list[i].Namespace], guard{&list[i], s})
	}
	return g
}

// refuses says why the pod couldn't be evicted now, "" if it could.
func (g Guards) refuses(p *corev1.Pod) string {
	var by []guard
	for _, x := range g[p.Namespace] {
		if x.selector.Matches(labels.Set(p.Labels)) {
			by = append(by, x)
		}
	}
	switch {
	case len(by) > 1:
		return fmt.Sprintf("pod %s/%s has %d PodDisruptionBudgets, so that it can't be evicted: leave one", p.Namespace, p.Name, len(by))
	case len(by) == 0 || by[0].Status.DisruptionsAllowed > 0:
		return ""
	case by[0].Spec.UnhealthyPodEvictionPolicy != nil && *by[0].Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow && !cluster.PodReady(p):
		return ""
	}
	return fmt.Sprintf("PodDisruptionBudget %s/%s allows no eviction now", p.Namespace, by[0].Name)
}

// podBlock says which pod keeps its node from voluntary disruption, if one does.
func (g Guards) podBlock(pods []*corev1.Pod, now time.Time) (Block, bool) {
	for _, p := range pods {
		if !cluster.DoNotDisrupt(p, now) {
			continue
		}
		b := Block{Code: "PodDoNotDisrupt", Message: fmt.Sprintf("pod %s/%s has the annotation %s", p.Namespace, p.Name, karpenter.AnnotationDoNotDisrupt)}
		if d, err := time.ParseDuration(p.Annotations[karpenter.AnnotationDoNotDisrupt]); err == nil && p.Status.StartTime != nil {
			b.Until = p.Status.StartTime.Add(d)
		}
		return b, true
	}
	for _, p := range pods {
		if !cluster.Drainable(p) {
			continue
		}
		if why := g.refuses(p); why != "" {
			return Block{Code: "PodDisruptionBudget", Message: why}, true
		}
	}
	return Block{}, false
}
