package provision

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestPodsStayOnProbe plans once for pods of a pool, and again while the one claim that
// it was allowed is being launched and the pool is closed: the claim is still wanted.
func TestPodsStayOnProbe(t *testing.T) {
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "p"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: aws.Group, Kind: "EC2NodeClass", Name: "c"}
	list := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("50")}
	kinds := []cloud.InstanceType{{
		Name: "c5.xlarge", Capacity: list, Allocatable: list,
		Labels:    map[string]string{corev1.LabelInstanceTypeStable: "c5.xlarge", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"},
		Offerings: []cloud.Offering{{CapacityType: cloud.OnDemand, Zone: "z1", ZoneID: "z-1", MicroUSD: 170000, Available: true}},
	}}
	class := &aws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	open := []cluster.Pool{{NodePool: pool, Class: class, Types: kinds}}
	state, model := cluster.NewState(clocktesting.NewFakePassiveClock(now)), cluster.NewModel()
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		state.SetPod(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{karpenter.LabelNodePool: "a"},
				Containers:   []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}},
		})
	}
	if err := model.Sync(state, open); err != nil {
		t.Fatal(err)
	}
	plan := model.Plan(pack.Options{})
	if len(plan.NewNodes) == 0 {
		t.Fatalf("no node is opened: %+v", plan.Unschedulable)
	}
	probe := NewClaim(pool, class, &plan.NewNodes[0])
	probe.Name, probe.UID = "a-probe", "c"
	state.Expect(probe)
	for _, pools := range [][]cluster.Pool{open, nil} {
		if err := model.Sync(state, pools); err != nil {
			t.Fatal(err)
		}
		plan = model.Plan(pack.Options{})
		n := 0
		for _, a := range plan.Assignments {
			if a.Node == "a-probe" {
				n++
			}
		}
		if n == 0 {
			t.Errorf("with %d pools open no pod stays on the claim that is being launched: %+v", len(pools), plan.Unschedulable)
		}
	}
}
