package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/pack"
)

// TestAttachLimitsOfTypes plans four pods with a volume each while a full node of the
// type says how many it can attach.
func TestAttachLimitsOfTypes(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	s, m, pools := NewState(clocktesting.NewFakePassiveClock(now)), NewModel(), testPools()
	pools[0].Types = pools[0].Types[:1]
	for i := range 4 {
		volume := fmt.Sprint("v", i)
		s.Set(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: volume}},
		}})
		s.Set(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: volume}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}})
		s.SetPod(pod(fmt.Sprint("p", i), unschedulable, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("100m")
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume}}}}
		}))
	}
	report := func(node string, n int32) func() {
		return func() {
			s.Set(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
				Name: driver, Allocatable: &storagev1.VolumeNodeResources{Count: &n},
			}}}})
		}
	}
	node := func(name string) func() {
		return func() {
			s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: "m5.large"}}, Spec: corev1.NodeSpec{Unschedulable: true}})
		}
	}
	for _, step := range []struct {
		why  string
		do   func()
		want int
	}{
		{"nothing is known of the type", func() {}, 1},
		{"the report comes before its node", report("a", 3), 1},
		{"the node is of the type", node("a"), 2},
		{"another can attach less", func() { node("b")(); report("b", 1)() }, 4},
		{"its driver is being updated", func() { s.Set(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "b"}}) }, 2},
		{"it can attach more than before", report("b", 4), 2},
		{"the other is gone, and reports no more", func() { s.DeleteNode("a") }, 1},
		{"it is back, as it was", node("a"), 2},
		{"both are gone", func() {
			s.Delete(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			s.Delete(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
			s.DeleteNode("a")
			s.DeleteNode("b")
		}, 1},
	} {
		step.do()
		if moment := s.attach.moment; s.nodes["a"] != nil {
			node("a")() // as with each heartbeat
			if s.attach.moment != moment {
				t.Errorf("%s: the types are translated anew for a node that hasn't changed", step.why)
			}
		}
		if err := m.Sync(s, pools); err != nil {
			t.Fatal(err)
		}
		if plan := m.Plan(pack.Options{}); len(plan.NewNodes) != step.want || len(plan.Unschedulable) != 0 {
			t.Errorf("%s: %d new nodes, %d pods without one; want %d and none", step.why, len(plan.NewNodes), len(plan.Unschedulable), step.want)
		}
	}
}
