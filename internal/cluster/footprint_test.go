package cluster

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// ordinary is a pod as the API server tells of it once it runs.
func ordinary(i int) *corev1.Pod {
	yes, seconds := true, int64(300)
	app := fmt.Sprintf("app-%03d", i/500)
	at := metav1.NewTime(now)
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at}
	}
	resources := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("790m"), corev1.ResourceMemory: resource.MustParse("2500Mi")}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("%s-7c9d8b5f6d-%05d", app, i), GenerateName: app + "-7c9d8b5f6d-", UID: types.UID(fmt.Sprintf("2f1c6c3e-0b8a-4a53-9c56-%012d", i)),
			ResourceVersion: fmt.Sprint(100000 + i), CreationTimestamp: at, Labels: map[string]string{"app": app, "pod-template-hash": "7c9d8b5f6d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-7c9d8b5f6d", UID: types.UID("1f1c6c3e-0b8a-4a53-9c56-" + app), Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("ip-10-0-0-%04d.us-west-2.compute.internal", i/20), ServiceAccountName: "default", SchedulerName: "default-scheduler", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example.com/team/app:v1.2.3", Resources: resources, Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.2.3", HostIP: "10.0.0.1", StartTime: &at, QOSClass: corev1.PodQOSBurstable,
			Conditions:        []corev1.PodCondition{condition("PodReadyToStartContainers"), condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady), condition(corev1.PodScheduled)},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, Image: "registry.example.com/team/app:v1.2.3", ImageID: "sha256:0123456789abcdef", Resources: &resources, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}},
		},
	}
}

// BenchmarkFootprint fills a state and the models of planner and disruption with 20,000
// pods on 1,000 nodes, each pod decoded by itself as by a watch, and reports the memory
// that they hold. It is for finding what is too large; make scale measures the process.
func BenchmarkFootprint(b *testing.B) {
	const pods = 20_000
	held := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	for b.Loop() {
		empty := held()
		slim := NewSlim()
		s := NewState(clocktesting.NewFakePassiveClock(now.Add(time.Hour)))
		for i := range pods {
			data, err := ordinary(i).Marshal()
			if err != nil {
				b.Fatal(err)
			}
			p := &corev1.Pod{}
			if err := p.Unmarshal(data); err != nil {
				b.Fatal(err)
			}
			if _, err := slim(p); err != nil {
				b.Fatal(err)
			}
			if i%20 == 0 {
				s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")}}})
			}
			s.SetPod(p)
		}
		cached := held()
		planner, disruption := NewModel(), NewModel()
		for _, m := range []*Model{planner, disruption} {
			if err := m.Sync(s, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(cached-empty, "MiB-pods")
		b.ReportMetric(held()-cached, "MiB-models")
		runtime.KeepAlive(s)
		runtime.KeepAlive(planner)
		runtime.KeepAlive(disruption)
	}
}
