package cluster

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// BenchmarkScale holds a fleet as a controller does: every watched object as
// its cache keeps it, the State that indexes them and the core's copy.
// held-MiB is all of it, core-MiB what State and Model add to the objects. An op of
// sync is 1,000 pod events, from the watch to the core.
func BenchmarkScale(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d/running=%d", nodes, 10*nodes), func(b *testing.B) {
			before := heapInUse()
			claims, machines, pods := fleetObjects(b, nodes)
			objects := heapInUse() - before
			s, m := NewState(clocktesting.NewFakePassiveClock(now)), NewModel()
			for i := range claims {
				s.SetClaim(claims[i])
				s.SetNode(machines[i])
			}
			for _, p := range pods {
				s.SetPod(p)
			}
			if err := m.Sync(s, nil); err != nil {
				b.Fatal(err)
			}
			held := heapInUse() - before
			next, made := 0, 0
			b.Run("sync", func(b *testing.B) {
				b.ReportAllocs()
				before := cpuTime()
				for b.Loop() {
					for range 500 {
						// A pod that is gone comes back as another of its name.
						next = (next + 97) % len(pods)
						p := *pods[next]
						s.DeletePod(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
						made++
						p.UID = types.UID(fmt.Sprintf("%s-%d", p.Name, made))
						pods[next] = &p
						s.SetPod(&p)
					}
					if err := m.Sync(s, nil); err != nil {
						b.Fatal(err)
					}
				}
				if len(s.pods) != len(pods) {
					b.Fatalf("%d pods are left of %d", len(s.pods), len(pods))
				}
				b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
				b.ReportMetric(float64(held)/(1<<20), "held-MiB")
				b.ReportMetric(float64(held-objects)/(1<<20), "core-MiB")
			})
			b.Run("place=10000", func(b *testing.B) {
				for i := range 10_000 {
					p := podOf(i, "")
					p.Name = fmt.Sprintf("new-%05d", i)
					unschedulable(p)
					s.SetPod(p)
				}
				var plan *pack.Plan
				for b.Loop() {
					if err := m.Sync(s, nil); err != nil {
						b.Fatal(err)
					}
					plan = m.Plan(pack.Options{Work: -1})
				}
				b.ReportMetric(float64(len(plan.Assignments)), "placed")
			})
			runtime.KeepAlive(s)
		})
	}
}

// fleetObjects makes nodes of 16 cores and ten pods on each.
func fleetObjects(b *testing.B, nodes int) ([]*karpenter.NodeClaim, []*corev1.Node, []*corev1.Pod) {
	zones := []string{"us-west-2a", "us-west-2b", "us-west-2c"}
	claims := make([]*karpenter.NodeClaim, nodes)
	machines := make([]*corev1.Node, nodes)
	pods := make([]*corev1.Pod, 0, 10*nodes)
	slim := NewSlim()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	for i := range nodes {
		name := fmt.Sprintf("node-%06d", i)
		labels := map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zones[i%3], corev1.LabelInstanceTypeStable: "m7i.4xlarge",
			karpenter.LabelNodePool: "general", karpenter.LabelCapacityType: karpenter.CapacityTypeOnDemand, karpenter.LabelInitialized: "true", karpenter.LabelRegistered: "true",
		}
		id := "aws:///" + zones[i%3] + "/i-" + name
		claims[i] = (&karpenter.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "general-" + name, Labels: labels, UID: types.UID("claim-" + name)},
			Status:     karpenter.NodeClaimStatus{ProviderID: id, NodeName: name, Capacity: room, Allocatable: room},
		}).DeepCopy()
		machines[i] = (&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, UID: types.UID("node-" + name)},
			Spec:       corev1.NodeSpec{ProviderID: id},
			Status:     corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}).DeepCopy()
		for range 10 {
			p, err := slim(podOf(len(pods), name))
			if err != nil {
				b.Fatal(err)
			}
			pods = append(pods, p.(*corev1.Pod))
		}
	}
	return claims, machines, pods
}

// podOf is the nth pod of a thousand Deployments; every tenth spreads over zones.
func podOf(n int, node string) *corev1.Pod {
	app := fmt.Sprintf("app-%d", n%1000)
	p := pod(fmt.Sprintf("pod-%07d", n), owned("apps/v1", "ReplicaSet"))
	p.Labels = map[string]string{"app": app}
	p.UID = types.UID(p.Name)
	p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = app, types.UID(app)
	p.Spec.NodeName = node
	p.Spec.Containers[0].Image = "registry.example/app:1"
	if n%10 == 0 {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
	if node != "" {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: now.Add(-time.Hour)}, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	}
	return p
}

// cpuTime is the processor time that the process has used, which other work on the
// machine lengthens less than it does wall time.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heapInUse is the live heap in bytes.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
