package cluster

import (
	"math/bits"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Bulk is how much room a pod asks for: the exponent of the least power of two that is
// more than its millicores and its memory, 4 GiB of which count as a core.
func Bulk(p *corev1.Pod) int {
	var sum int64
	for i := range p.Spec.Containers {
		r := p.Spec.Containers[i].Resources.Requests
		sum += r.Cpu().MilliValue() + r.Memory().Value()*1000>>32
	}
	return bits.Len64(uint64(max(0, sum)))
}

// Bulkiest is the bulk of the largest pod that has yet to be evicted from a machine which
// disruption has begun to drain, or is about to, within a window before now; 0 if there
// is none. Pods whose turn comes after all others, and those that can't be evicted, don't
// count.
func (s *State) Bulkiest(window time.Duration) int {
	s.mu.Lock() // sorting is remembered
	defer s.mu.Unlock()
	now, most := s.clock.Now(), 0
	for _, c := range s.claims {
		d, ok := coppice.DisruptionOf(c)
		switch {
		case !ok || !apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionDisruptionReason):
			continue
		case c.DeletionTimestamp != nil && now.Sub(c.DeletionTimestamp.Time) >= window:
			continue
		case c.DeletionTimestamp == nil && (len(d.Replacements) > 0 || now.Sub(d.Since) >= window):
			continue // it waits for others, or has been given back
		}
		for _, p := range s.podsOn(s.nodeOf[c.Status.ProviderID]) {
			if p.DeletionTimestamp == nil && Reschedulable(p) && Drainable(p) && !Critical(p) && !s.held(p, now) {
				most = max(most, Bulk(p))
			}
		}
	}
	return most
}

// Critical reports whether others depend on the pod, so that it leaves a node last.
func Critical(p *corev1.Pod) bool {
	return p.Spec.PriorityClassName == "system-cluster-critical" || p.Spec.PriorityClassName == "system-node-critical"
}
