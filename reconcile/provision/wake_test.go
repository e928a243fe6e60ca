package provision

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

func TestWhatMattersToPlans(t *testing.T) {
	pools := map[string]struct {
		why    string
		change func(*karpenter.NodePool)
		want   bool
	}{
		"ready":     {"pods may have been waiting for it", func(p *karpenter.NodePool) { p.Status.Conditions[0].Status = metav1.ConditionTrue }, true},
		"a limit":   {"a higher one leaves room", func(p *karpenter.NodePool) { p.Generation++ }, true},
		"deleted":   {"another pool has to do", func(p *karpenter.NodePool) { p.DeletionTimestamp = &metav1.Time{Time: now} }, true},
		"an option": {"it isn't in the spec", func(p *karpenter.NodePool) { p.Annotations = map[string]string{"a": "b"} }, true},
		"its nodes": {"they are known without it", func(p *karpenter.NodePool) {
			p.Status.Resources = corev1.ResourceList{"cpu": resource.MustParse("4")}
		}, false},
		"nothing": {"the cache repeats what it knows", func(*karpenter.NodePool) {}, false},
	}
	for name, tc := range pools {
		t.Run(name, func(t *testing.T) {
			before := &karpenter.NodePool{}
			before.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionReady, Status: metav1.ConditionUnknown}}
			after := before.DeepCopy()
			tc.change(after)
			if got := poolMatters(before, after); got != tc.want {
				t.Errorf("poolMatters() = %v, want %v (%s)", got, tc.want, tc.why)
			}
		})
	}
	before, after := &aws.EC2NodeClass{}, &aws.EC2NodeClass{}
	if classMatters(before, after) {
		t.Error("a class that hasn't changed matters")
	}
	after.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionReady, Status: metav1.ConditionTrue}}
	if !classMatters(before, after) {
		t.Error("a class that became ready doesn't matter")
	}
}

// TestNudge has the planner wait for ever, there being no pods, and asks it for a plan.
func TestNudge(t *testing.T) {
	clk := clocktesting.NewFakeClock(now)
	looks := make(chan struct{}, 100)
	p := &Planner{
		kube: interceptor.NewClient(fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).Build(), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				looks <- struct{}{}
				return c.List(ctx, list, opts...)
			},
		}),
		state: cluster.NewState(clk), synced: func() bool { return true }, cloud: nothingSold{}, clock: clk, batch: DefaultBatch,
		wake: make(chan struct{}, 1), model: cluster.NewModel(), told: map[string]said{}, places: map[string]string{},
		health: &health.Tracker{}, held: map[string]health.Hold{}, metrics: metrics.New(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	look := func(what string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; {
			select {
			case <-looks:
				return
			case <-time.After(time.Millisecond):
				if clk.HasWaiters() {
					clk.Step(DefaultBatch.Idle)
				}
				if time.Now().After(end) {
					t.Fatalf("no plan %s", what)
				}
			}
		}
	}
	look("at first")
	p.nudge()
	look("when asked for one")
}
