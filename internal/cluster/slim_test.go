package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestSlimChangesNoDecision translates pods as they are and as they are cached.
func TestSlimChangesNoDecision(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	full := pod("p", unschedulable, func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
		p.Annotations = map[string]string{
			karpenter.AnnotationDoNotDisrupt: "true", AnnotationDeletionCost: "-5", "kubectl.kubernetes.io/last-applied-configuration": "{}",
		}
		p.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}}}}}
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		p.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}}}}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081}}
		p.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}}
		// It was enlarged in place, beyond its spec's request for now.
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Image: "web", Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}
	})
	cached, err := Slim(full.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	got := cached.(*corev1.Pod)
	s := NewState(nil)
	want, err := PodSpec(full, around{s})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := PodSpec(got, around{s})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("what the pod asks for (-as it is +as it is cached):\n%s", diff)
	}
	if cpu := spec.Requests["cpu"]; cpu != 3350 {
		t.Errorf("%d m of CPU, want 3350: three cores after the resize, the sidecar and the overhead", cpu)
	}
	if len(got.ManagedFields) != 0 || len(got.Annotations) != 2 || got.Spec.Containers[0].Env != nil || len(got.Spec.Containers[0].Ports) != 1 || len(got.Spec.Volumes) != 0 {
		t.Errorf("the cache keeps %+v", got)
	}
	if DoNotDisrupt(full, now) != DoNotDisrupt(got, now) || Provisionable(full) != Provisionable(got) || Drainable(full) != Drainable(got) {
		t.Error("the pod as it is cached is treated otherwise")
	}
}

func TestSlimForgetsUnchangedResources(t *testing.T) {
	p := pod("p")
	same := p.Spec.Containers[0].Resources
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &same}}
	SlimPod(p)
	if len(p.Status.ContainerStatuses) != 0 {
		t.Errorf("the cache keeps %+v, which says no more than the spec", p.Status.ContainerStatuses)
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", Image: "web", Resources: &same, RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "long"}},
	}}
	SlimPod(p)
	want := []corev1.ContainerStatus{{Name: "c", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	if diff := cmp.Diff(want, p.Status.ContainerStatuses); diff != "" {
		t.Errorf("of a container that fails the cache keeps (-want +got):\n%s", diff)
	}
}

func TestSlimNode(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true", karpenter.AnnotationDoNotDisrupt: "true"}},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///z/i-1", PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "k"}}},
		Status:     corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"web"}}}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	SlimNode(n)
	if n.Status.Images != nil || len(n.Annotations) != 1 || !Ready(n) || n.Spec.ProviderID == "" || !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "k" }) {
		t.Errorf("the cache keeps %+v", n)
	}
}

func TestPodsOfOneOwnerShare(t *testing.T) {
	slim := NewSlim()
	cached := func(name string, alter ...func(*corev1.Pod)) *corev1.Pod {
		t.Helper()
		p := pod(name, append([]func(*corev1.Pod){owned("apps/v1", "ReplicaSet"), func(p *corev1.Pod) {
			p.OwnerReferences[0].UID = "rs"
			p.Spec.Tolerations = []corev1.Toleration{{Key: "k"}}
		}}, alter...)...)
		want := p.DeepCopy()
		got, err := slim(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Slim(want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what is shared differs from what was there (-want +got):\n%s", diff)
		}
		return got.(*corev1.Pod)
	}
	a, b := cached("a"), cached("b")
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] || &a.Spec.Tolerations[0] != &b.Spec.Tolerations[0] {
		t.Error("equal pods don't share")
	}
	c := cached("c", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
	})
	if &a.Spec.Containers[0] == &c.Spec.Containers[0] || &a.Spec.Tolerations[0] != &c.Spec.Tolerations[0] {
		t.Error("of another request the request alone is its own")
	}
}
