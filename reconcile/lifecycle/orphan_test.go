package lifecycle

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestOrphans has nodes at several stages of the end, of which only one may go: the one
// that nothing is left of, neither claim nor instance nor kubelet.
func TestOrphans(t *testing.T) {
	instance := func(id, state string) cloud.Instance {
		return cloud.Instance{ID: id, ProviderID: "aws:///z/" + id, State: state, LaunchTime: now.Add(-time.Hour)}
	}
	member := func(name string, alter ...func(*corev1.Node)) *corev1.Node {
		n := node(func(n *corev1.Node) {
			n.Name, n.Spec.ProviderID = name, "aws:///z/"+name
			n.Labels[aws.LabelNodeClass] = "default"
			n.Finalizers = []string{karpenter.Finalizer}
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		})
		for _, f := range alter {
			f(n)
		}
		return n
	}
	deleted := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: now} }
	tests := map[string]struct {
		why       string
		node      *corev1.Node
		instances []cloud.Instance
		gone      bool
		more      bool
	}{
		"nothing left":     {"it would stay for ever", member("i-1", deleted), nil, true, false},
		"not deleted":      {"no more does one stay that nobody has deleted", member("i-1"), nil, true, false},
		"instance ending":  {"it goes with its instance", member("i-1", deleted), []cloud.Instance{instance("i-1", "shutting-down")}, false, true},
		"kubelet answers":  {"the cloud's list may lag", member("i-1", deleted, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }), nil, false, true},
		"claimed":          {"the claim's own end lets it go", member("i-2", deleted), nil, false, false},
		"owned":            {"its claim has lost its status", member("i-3", func(n *corev1.Node) { n.OwnerReferences = ownedByClaim(nil, claim()) }), nil, false, false},
		"another provider": {"the finalizer is every provider's", member("i-1", func(n *corev1.Node) { delete(n.Labels, aws.LabelNodeClass) }), nil, false, false},
		"somebody else's":  {"it was never taken over", member("i-1", func(n *corev1.Node) { n.Finalizers = nil }), nil, false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kube := stored(t, tc.node, claim(func(c *karpenter.NodeClaim) {
				c.Status.ProviderID = "aws:///z/i-2"
				c.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionLaunched, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}
			}))
			c := &collector{kube: kube, live: kube, cloud: &stubborn{instances: tc.instances}, clock: clocktesting.NewFakeClock(now), metrics: metrics.New()}
			more, err := c.collect(t.Context())
			if err != nil || more != tc.more {
				t.Errorf("collect() = %v, %v; want %v (%s)", more, err, tc.more, tc.why)
			}
			if err := kube.Get(t.Context(), client.ObjectKeyFromObject(tc.node), &corev1.Node{}); apierrors.IsNotFound(err) != tc.gone {
				t.Errorf("the Node: %v, want it gone: %v (%s)", err, tc.gone, tc.why)
			}
		})
	}
}

// TestEndIsCountedOnce has a claim looked at again, as it was before its end, after that:
// the watch is later than the end of its Node, which asks for it.
func TestEndIsCountedOnce(t *testing.T) {
	c := claim(func(c *karpenter.NodeClaim) {
		c.Finalizers, c.DeletionTimestamp = []string{karpenter.Finalizer}, &metav1.Time{Time: now}
		c.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: aws.Group}
		c.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionRegistered, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}
	})
	kube := stored(t, c)
	stale := &karpenter.NodeClaim{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(c), stale); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{
		kube: interceptor.NewClient(kube, interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
				stale.DeepCopyInto(o.(*karpenter.NodeClaim))
				return nil
			},
			// The API server answers the removal of the last finalizer with the version
			// that it was asked to change.
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				defer o.SetResourceVersion(o.GetResourceVersion())
				return c.Patch(ctx, o, p, opts...)
			},
		}),
		cloud: &stubborn{}, clock: clocktesting.NewFakeClock(now), health: &health.Tracker{}, metrics: metrics.New(), events: events.NewFakeRecorder(10),
	}
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(c), &karpenter.NodeClaim{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the claim: %v, want it gone", err)
	}
	if got := counted(t, r.metrics.NodeClaimsTerminated.WithLabelValues("general", "", "")); got != 1 {
		t.Errorf("the end of one NodeClaim was counted %v times", got)
	}
	if got := counted(t, r.metrics.NodesTerminated.WithLabelValues("general", "")); got != 1 {
		t.Errorf("the end of one Node was counted %v times", got)
	}
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
