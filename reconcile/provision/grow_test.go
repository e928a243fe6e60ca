package provision

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// nothingSold is a cloud whose types don't matter.
type nothingSold struct{}

func (nothingSold) InstanceTypes(context.Context, *aws.EC2NodeClass) ([]cloud.InstanceType, error) {
	return nil, nil
}

// TestStaticPoolsShareLimit lets two pools grow at once into a limit that has room for
// the nodes of one.
func TestStaticPoolsShareLimit(t *testing.T) {
	replicas := int64(3)
	objects := []client.Object{&aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}}
	for _, name := range []string{"a", "b"} {
		p := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Replicas = &replicas
		p.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: aws.Group, Kind: "EC2NodeClass", Name: "c"}
		p.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionReady, Status: metav1.ConditionTrue}}
		objects = append(objects, p)
	}
	clk := clocktesting.NewFakeClock(now)
	kube := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			time.Sleep(50 * time.Millisecond) // as long as the other pool needs to look
			return c.Create(ctx, o, opts...)
		},
	})
	r := &static{
		kube: kube, state: cluster.NewState(clk), synced: func() bool { return true }, events: events.NewFakeRecorder(100), clock: clk,
		health: &health.Tracker{}, cloud: nothingSold{}, limits: corev1.ResourceList{"nodes": resource.MustParse("4")}, metrics: metrics.New(),
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var claims karpenter.NodeClaimList
	if err := kube.List(t.Context(), &claims); err != nil || len(claims.Items) != 4 {
		t.Errorf("%d claims, %v; the limit is 4", len(claims.Items), err)
	}
}
