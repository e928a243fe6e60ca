package lifecycle

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestPodsAreNominatedFirst looks at the Node at each moment when its pods are nominated:
// once it is open to any, others may take the room.
func TestPodsAreNominatedFirst(t *testing.T) {
	kube := stored(t, node(func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	}))
	var seen []string
	r := &Reconciler{kube: kube, clock: clock.RealClock{}, events: events.NewFakeRecorder(10), settle: func(ctx context.Context, claim, name string) error {
		var n corev1.Node
		if err := kube.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, claim)
		for _, taint := range []corev1.Taint{karpenter.UnregisteredTaint(), {Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}} {
			if cluster.HasTaint(&n, taint) {
				seen = append(seen, taint.Key)
			}
		}
		return nil
	}}
	c := claim()
	look := func() {
		t.Helper()
		var n corev1.Node
		if err := kube.Get(t.Context(), client.ObjectKey{Name: node().Name}, &n); err != nil {
			t.Fatal(err)
		}
		registered, err := r.register(t.Context(), c, &n)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.initialize(t.Context(), c, registered); err != nil {
			t.Fatal(err)
		}
	}
	look()
	look() // nothing has changed
	var n corev1.Node
	if err := kube.Get(t.Context(), client.ObjectKey{Name: node().Name}, &n); err != nil {
		t.Fatal(err)
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	if err := kube.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	look()
	look()
	want := []string{"general-x", karpenter.TaintUnregistered, corev1.TaintNodeNotReady, "general-x"}
	if !slices.Equal(seen, want) {
		t.Errorf("nominated at %q, want %q: before the Node is open, and when it is ready", seen, want)
	}
}
