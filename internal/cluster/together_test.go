package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/pack"
)

// TestPodsOfOneVolumeShareANode: a volume that is attached to one node at a time keeps
// its pods together, wherever the first of them is.
func TestPodsOfOneVolumeShareANode(t *testing.T) {
	const shared = "shared"
	running := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning }
	}
	for name, test := range map[string]struct {
		why     string
		modes   []corev1.PersistentVolumeAccessMode
		driver  string
		cpu     string // of each of eight pods
		first   []func(*corev1.Pod)
		claims  string
		planned int
		nodes   int // that they are on, new or not
		reason  string
	}{
		"fit on one node":        {"all share the largest type", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, attachedOnce, "400m", nil, shared, 8, 1, ""},
		"too much for one":       {"the rest would wait for the volume in vain", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, attachedOnce, "1", nil, shared, 3, 1, "attached to one node only"},
		"first runs with room":   {"they go where it is", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, attachedOnce, "400m", []func(*corev1.Pod){running("roomy")}, shared, 8, 1, ""},
		"first runs without":     {"no further node helps", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, attachedOnce, "400m", []func(*corev1.Pod){running("tight")}, shared, 0, 0, "attached to one node only"},
		"first is being ended":   {"its volume can be attached elsewhere soon", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, attachedOnce, "400m", []func(*corev1.Pod){running("tight"), leaving}, shared, 8, 1, ""},
		"many nodes may use it":  {"ReadWriteMany", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteMany}, attachedOnce, "1", nil, shared, 8, 4, ""},
		"isn't attached":         {"EFS is mounted over the network", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, "efs.csi.aws.com", "1", nil, shared, 8, 4, ""},
		"one pod alone":          {"ReadWriteOncePod", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, attachedOnce, "400m", nil, shared, 1, 1, ""},
		"one pod alone, running": {"the scheduler lets no other in", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, attachedOnce, "400m", []func(*corev1.Pod){running("roomy")}, shared, 0, 0, ""},
		"one pod alone, ending":  {"it counts until it is gone", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, attachedOnce, "400m", []func(*corev1.Pod){running("roomy"), leaving}, shared, 0, 0, ""},
		"of its own":             {"a StatefulSet's pods share nothing", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, attachedOnce, "1", nil, "own-%d", 8, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := NewState(clocktesting.NewFakePassiveClock(now)), NewModel()
			s.Set(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: test.driver}},
			}})
			using := func(i int) func(*corev1.Pod) {
				claim := test.claims
				if strings.Contains(claim, "%d") {
					claim = fmt.Sprintf(claim, i)
				}
				s.Set(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: claim},
					Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv", AccessModes: test.modes}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
				return func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
				}
			}
			if test.first != nil {
				for node, cpu := range map[string]string{"roomy": "16", "tight": "1"} {
					has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
					s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}, Status: corev1.NodeStatus{
						Capacity: has, Allocatable: has, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
				}
				s.SetPod(pod("first", append(test.first, using(100))...))
			}
			plan := func() *pack.Plan {
				if err := m.Sync(s, testPools()); err != nil {
					t.Fatal(err)
				}
				return m.Plan(pack.Options{})
			}
			for i := range 8 {
				s.SetPod(pod(fmt.Sprintf("p-%d", i), unschedulable, asks(test.cpu), using(i)))
				if i == 0 {
					plan() // what is known of the first changes when others come
				}
			}
			p := plan()
			planned, nodes := len(p.Assignments), map[string]bool{}
			for _, a := range p.Assignments {
				nodes[a.Node] = true
			}
			for i, n := range p.NewNodes {
				planned += len(n.Pods)
				nodes[fmt.Sprint(i)] = true
			}
			if planned != test.planned || len(nodes) != test.nodes {
				t.Errorf("%d pods are planned onto %d nodes, want %d onto %d (%s): refused %v", planned, len(nodes), test.planned, test.nodes, test.why, m.Refused())
			}
			for _, u := range p.Unschedulable {
				if !slices.ContainsFunc(u.Reasons, func(r pack.Reason) bool { return strings.Contains(Explain(r), test.reason) }) {
					t.Errorf("%s: %v, want %q", u.Pod, u.Reasons, test.reason)
				}
			}
			if alone := slices.Contains(test.modes, corev1.ReadWriteOncePod); alone != (len(m.Refused()) > 0) {
				t.Errorf("refused: %v (%s)", m.Refused(), test.why)
			}
		})
	}
}

// leaving marks a pod that is being ended.
func leaving(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
