package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/pack"
)

// claiming makes a pod use a PersistentVolumeClaim.
func claiming(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
}

func volumeClaim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

// TestWhatTouchesPods counts the pods that a change makes the model translate anew.
func TestWhatTouchesPods(t *testing.T) {
	s, m := NewState(clocktesting.NewFakePassiveClock(now)), NewModel()
	for i := range 5 {
		s.SetPod(pod(fmt.Sprint("p", i), unschedulable, claiming(fmt.Sprint("c", i))))
		s.Set(volumeClaim(fmt.Sprint("c", i), ""))
	}
	s.SetPod(pod("plain", unschedulable))
	s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	if err := m.Sync(s, nil); err != nil {
		t.Fatal(err)
	}
	volume := func(name, claim string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "d", Name: claim}}}
	}
	for _, x := range []struct {
		why  string
		do   func()
		want int
	}{
		{"a claim of one", func() { s.Set(volumeClaim("c1", "v1")) }, 1},
		{"a claim of nobody", func() { s.Set(volumeClaim("other", "")) }, 0},
		{"the volume that a claim names", func() { s.Set(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v1"}}) }, 1},
		{"the volume that is for a claim", func() { s.Set(volume("v2", "c2")) }, 1},
		{"it is given to another", func() { s.Set(volume("v2", "c3")) }, 2},
		{"it is gone", func() { s.Delete(volume("v2", "c3")) }, 1},
		{"a namespace's status", func() { s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}}) }, 0},
		{"a PodDisruptionBudget", func() { s.Set(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "b"}}) }, 0},
		{"a storage class", func() { s.Set(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}}) }, 5},
		{"a claim whose pod is gone", func() {
			s.DeletePod(types.NamespacedName{Namespace: "d", Name: "p4"})
			s.Delete(volumeClaim("c4", ""))
		}, 1},
	} {
		x.do()
		d := s.dirty[m]
		got := len(d.pods)
		for k, on := range m.scoped {
			if _, dirty := d.pods[k]; !dirty && on&*d.around != 0 {
				got++
			}
		}
		if got != x.want {
			t.Errorf("%s: %d pods are translated anew, want %d", x.why, got, x.want)
		}
		if err := m.Sync(s, nil); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(4, len(s.claimants)); diff != "" {
		t.Errorf("claims with pods (-want +got): the last pod's is to be forgotten\n%s", diff)
	}
}

// TestDaemonWithoutItsVolume has two DaemonSets, the claim of one of which comes late.
func TestDaemonWithoutItsVolume(t *testing.T) {
	s, m, pools := NewState(clocktesting.NewFakePassiveClock(now)), NewModel(), testPools()
	pools[0].Types = pools[0].Types[:1] // 1.9 cores
	daemon := func(name, cpu string, alter ...func(*corev1.Pod)) {
		p := pod(name, alter...)
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
		s.SetDaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: p.Spec}}})
	}
	s.SetPod(pod("p", unschedulable, func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	}))
	fits := func(why string, want bool) {
		t.Helper()
		if err := m.Sync(s, pools); err != nil {
			t.Fatal(err)
		}
		if got := len(m.Plan(pack.Options{}).Unschedulable) == 0; got != want {
			t.Errorf("%s: the pod fits: %t, want %t", why, got, want)
		}
	}
	daemon("late", "500m", claiming("late"))
	fits("a daemon whose claim is missing takes no room", true)
	daemon("good", "500m")
	fits("another's room is counted none the less", true)
	daemon("good", "1")
	fits("also when it changes", false)
	daemon("good", "500m")
	fits("and back", true)
	s.Set(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	s.Set(volumeClaim("late", "v"))
	fits("the claim has come, and with it the daemon", false)
}

func TestVolumeThatIsBeingMade(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	s := NewState(clocktesting.NewFakePassiveClock(now))
	s.Set(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "gp3"}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &wait})
	claim, class := volumeClaim("c", ""), "gp3"
	claim.Spec.StorageClassName, claim.Annotations = &class, map[string]string{annSelectedNode: "n1"}
	s.Set(claim)
	spec, err := PodSpec(pod("p", claiming("c")), around{s})
	if err != nil {
		t.Fatal(err)
	}
	want := []pack.Volume{{Name: "d/c", Driver: "ebs.csi.aws.com", Terms: [][]pack.Requirement{{{Key: "metadata.name", Operator: pack.In, Values: []string{"n1"}}}}}}
	if diff := cmp.Diff(want, spec.Volumes); diff != "" {
		t.Errorf("volumes (-want +got): the scheduler takes the pod to the node that the volume is made for alone\n%s", diff)
	}
}

func TestHostPortsOfContainersThatEnd(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	port := func(n int32) []corev1.ContainerPort { return []corev1.ContainerPort{{HostPort: n}} }
	p := pod("p", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Ports: port(1)}, {Ports: port(2), RestartPolicy: &always}}
		p.Spec.Containers[0].Ports = port(3)
	})
	want := []pack.HostPort{{Protocol: "TCP", Port: 2}, {Protocol: "TCP", Port: 3}}
	if diff := cmp.Diff(want, hostPorts(p)); diff != "" {
		t.Errorf("ports (-want +got): of init containers only a sidecar's\n%s", diff)
	}
}
