package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
)

// Nominator writes planned pods' places into their statuses, once a place has a Node.
// The scheduler tries that Node first and keeps the room from others, so that pods land
// as they were packed: without it, it spreads them over the new nodes as these come up,
// and who is left over needs a node more.
//
// Pods with a hard topology spread aren't nominated: when the scheduler tries one on a
// Node it counts all that are nominated to that Node, and none that are nominated to
// others, so that several of one spread would keep each other off every Node.
//
// The scheduler drops a nomination when it tries the pod before the Node is ready; the pod
// is then pending again.
type Nominator struct {
	kube  client.Client
	live  client.Reader // past the cache, which may lag behind the scheduler
	state *cluster.State
}

// NewNominator nominates what state's plan says.
func NewNominator(kube client.Client, live client.Reader, state *cluster.State) *Nominator {
	return &Nominator{kube, live, state}
}

// hold is how long a Node is kept from pods at most while those that were planned onto
// it are nominated: an API server that is slow must not cost more than bad packing does.
const hold = 2 * time.Second

// mostNominated is the number of planned pods up to which they are nominated. To try any
// pod on a node the scheduler goes through all that are nominated to it: with 2,000 pods
// nominated to 200 nodes it bound some 30 a second, which took twice as long in all as
// without, for nodes that were 2 % cheaper.
const mostNominated = 1000

// Settle nominates the pods that are planned onto the claim, and aren't yet, to its Node.
func (n *Nominator) Settle(ctx context.Context, claim, node string) error {
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	if n.state.Places() > mostNominated {
		return nil
	}
	pods := n.state.Expected(claim)
	return errors.Join(kube.Each(len(pods), func(i int) error { return n.nominate(ctx, pods[i], node) })...)
}

// nominate does so for one pod, unless it is nominated to it already, has hard spread or
// is bound. The state knows at once, so that no plan made meanwhile sends the pod elsewhere.
func (n *Nominator) nominate(ctx context.Context, pod *corev1.Pod, node string) error {
	from := pod.Status.NominatedNodeName
	for {
		if pod.Status.NominatedNodeName == node || pod.Spec.NodeName != "" || spreads(pod) {
			return nil
		}
		want := pod.DeepCopy()
		want.Status.NominatedNodeName = node
		n.state.SetPod(want)
		// The pod may have been bound or replaced since it was read.
		patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
		err := n.kube.Status().Patch(ctx, want, patch)
		if err == nil {
			cluster.SlimPod(want)
			n.state.SetPod(want)
			return nil
		}
		n.state.SetPod(pod)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("nominate pod %s/%s to Node %s: %w", pod.Namespace, pod.Name, node, err)
		}
		// The scheduler has just tried it once more: its word is older than the Node.
		var now corev1.Pod
		if err := n.live.Get(ctx, client.ObjectKeyFromObject(pod), &now); err != nil {
			return client.IgnoreNotFound(err)
		}
		if now.UID != pod.UID || now.Status.NominatedNodeName != "" && now.Status.NominatedNodeName != from {
			return nil
		}
		cluster.SlimPod(&now)
		pod = &now
	}
}

// spreads reports whether the pod has a topology spread that the scheduler may not
// break.
func spreads(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	})
}

// nominate nominates the pods whose places have a Node: existing ones, and new ones that
// were open before a plan knew of their pods.
func (p *Planner) nominate(ctx context.Context) error {
	if len(p.places) > mostNominated {
		return nil
	}
	names, began := slices.Sorted(maps.Keys(p.places)), p.clock.Now()
	return errors.Join(kube.Each(len(names), func(i int) error {
		if p.clock.Since(began) > follow {
			return nil // by the next plan: new pods mustn't wait for thousands of writes
		}
		pod, node := p.model.Pod(names[i]), p.state.NodeName(p.places[names[i]])
		if pod == nil || node == "" || pod.Spec.NodeName != "" {
			return nil // gone, too early, or still on a node that is being drained
		}
		return p.nominator.nominate(ctx, pod, node)
	})...)
}
