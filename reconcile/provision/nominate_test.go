package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/testkit"
)

// TestNominate has the API server answer a nomination in each way that it may.
func TestNominate(t *testing.T) {
	waits := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u"},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}},
		}
	}
	for name, test := range map[string]struct {
		why string
		// change is what happens to the pod before the nomination comes, alter what the
		// pod is from the start, fail what the server says.
		change, alter func(*corev1.Pod)
		fail          error
		want          string // nominated to, at the server
		known         string // nominated to, as plans know
	}{
		"plain": {why: "nothing is in the way", want: "n", known: "n"},
		"tried": {why: "the scheduler has tried it once more since it was read", change: func(p *corev1.Pod) {
			p.Status.Conditions[0].Message = "0/3 nodes are available"
		}, want: "n", known: "n"},
		"bound":    {why: "it has a Node by now", change: func(p *corev1.Pod) { p.Spec.NodeName = "other" }},
		"replaced": {why: "another pod has its name by now", change: func(p *corev1.Pod) { p.UID = "v" }},
		"spread": {why: "nominated pods of one spread keep each other off", alter: func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
		}},
		"refused": {why: "the server is in trouble: the pod still waits", fail: errors.New("etcd is away")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := waits()
			if test.alter != nil {
				test.alter(pod)
			}
			kube := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).WithObjects(pod).WithStatusSubresource(&corev1.Pod{}).Build(), interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if test.fail != nil {
						return test.fail
					}
					return c.SubResource(sub).Patch(ctx, o, patch, opts...)
				},
			})
			state := cluster.NewState(clock.RealClock{})
			var read corev1.Pod
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), &read); err != nil {
				t.Fatal(err)
			}
			state.SetPod(&read)
			model := cluster.NewModel()
			if err := model.Sync(state, nil); err != nil {
				t.Fatal(err)
			}
			state.SetPlan(model, map[string]string{"d/p": "claim"})
			if test.change != nil {
				now := read.DeepCopy()
				test.change(now)
				if now.UID != read.UID {
					if err := errors.Join(kube.Delete(t.Context(), &read), kube.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: now.UID}})); err != nil {
						t.Fatal(err)
					}
				} else if err := errors.Join(kube.Update(t.Context(), now.DeepCopy()), kube.Status().Update(t.Context(), touched(t, kube, now))); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := NewNominator(kube, kube, state).Settle(ctx, "claim", "n"); !errors.Is(err, test.fail) {
				t.Errorf("Settle() = %v, want %v", err, test.fail)
			}
			var got corev1.Pod
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), &got); err != nil {
				t.Fatal(err)
			}
			if got.Status.NominatedNodeName != test.want {
				t.Errorf("nominated to %q, want %q: %s", got.Status.NominatedNodeName, test.want, test.why)
			}
			if still := len(state.Expected("claim")); (still == 0) != (test.known != "") {
				t.Errorf("plans know of %d pods that wait, want it nominated to %q: %s", still, test.known, test.why)
			}
		})
	}
}

// touched is the pod with its status, to be written over what the server has by now.
func touched(t *testing.T, kube client.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var now corev1.Pod
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), &now); err != nil {
		t.Fatal(err)
	}
	now.Status = pod.Status
	return &now
}
