package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/kube"
)

// nominate writes each planned pod's place into its status, once the place has a
// Node. The scheduler tries that Node first and keeps the room from others, so that
// pods land as they were packed: without it, it spreads them over the new nodes as
// these come up, and who is left over needs a node more.
//
// Pods with a hard topology spread aren't nominated: when the scheduler tries one on a
// Node it counts all that are nominated to that Node, and none that are nominated to
// others, so that several of one spread would keep each other off every Node.
//
// The scheduler drops a nomination when it tries the pod before the Node is ready;
// the pod is then pending again, and the next plan repeats it.
func (p *Planner) nominate(ctx context.Context) error {
	names, began := slices.Sorted(maps.Keys(p.places)), p.clock.Now()
	return errors.Join(kube.Each(len(names), func(i int) error {
		if p.clock.Since(began) > follow {
			return nil // by the next plan: new pods mustn't wait for thousands of writes
		}
		pod, node := p.model.Pod(names[i]), p.state.NodeName(p.places[names[i]])
		if pod == nil || node == "" || pod.Spec.NodeName != "" || spreads(pod) {
			return nil // gone, too early, or still on a node that is being drained
		}
		return p.nominateOne(ctx, pod, node)
	})...)
}

// spreads reports whether the pod has a topology spread that the scheduler may not
// break.
func spreads(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	})
}

func (p *Planner) nominateOne(ctx context.Context, pod *corev1.Pod, node string) error {
	want := pod.DeepCopy()
	want.Status.NominatedNodeName = node
	// The pod may have been bound or replaced since it was read.
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := p.kube.Status().Patch(ctx, want, patch); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return fmt.Errorf("nominate pod %s/%s to Node %s: %w", pod.Namespace, pod.Name, node, err)
	}
	p.state.SetPod(want)
	return nil
}
