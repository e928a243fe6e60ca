package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/types"
)

// TestLikePodsShareTheirTranslation: pods of one owner are translated once, and each
// that differs in what matters by itself.
func TestLikePodsShareTheirTranslation(t *testing.T) {
	amounts := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for name, test := range map[string]struct {
		why    string
		alter  func(*corev1.Pod)
		shares bool
	}{
		"equal":        {"nothing differs", func(*corev1.Pod) {}, true},
		"name":         {"pods have names of their own", func(p *corev1.Pod) { p.Name = "other" }, true},
		"node":         {"one runs, one doesn't", func(p *corev1.Pod) { p.Spec.NodeName = "n" }, true},
		"started anew": {"what a container takes stays", func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} }, true},
		"requests":     {"a new revision asks for more", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts("3") }, false},
		"init":         {"one has an init container", func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init"}} }, false},
		"pod level":    {"the pod's requests replace its containers'", func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("4")} }, false},
		"overhead":     {"a runtime takes something", func(p *corev1.Pod) { p.Spec.Overhead = amounts("1") }, false},
		"resized": {"it was resized in place", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &corev1.ResourceRequirements{Requests: amounts("5")}}}
		}, false},
		"node selector": {"it wants a zone", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"} }, false},
		"affinity":      {"it wants no other", func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} }, false},
		"tolerations":   {"it tolerates all", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }, false},
		"revision":      {"matchLabelKeys take the pod's own value", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "a", "rev": "2"} }, false},
		"policy":        {"its preferences count otherwise", func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationPreferencePolicy: "Ignore"} }, false},
		"another owner": {"owners know nothing of each other", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }, false},
		"without owner": {"nobody says that there are others", func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"with a volume": {"what a claim means changes", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}, false},
		"another spread": {"it minds another skew", func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints[0].MaxSkew = 7 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			slim := NewSlim()
			made := func() *corev1.Pod {
				p := pod("p", owned("apps/v1", "ReplicaSet"))
				p.OwnerReferences[0].UID = "owner"
				p.Labels = map[string]string{"app": "a", "rev": "1"}
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
					TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, MatchLabelKeys: []string{"rev"},
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
				}}
				return p
			}
			cached := func(p *corev1.Pod) *corev1.Pod {
				out, err := slim(p)
				if err != nil {
					t.Fatal(err)
				}
				return out.(*corev1.Pod)
			}
			var specs translations
			first, err := specs.podSpec(cached(made()), around{})
			if err != nil {
				t.Fatal(err)
			}
			other := made()
			test.alter(other)
			other = cached(other)
			got, err := specs.podSpec(other, around{})
			if err != nil {
				t.Fatal(err)
			}
			if (got == first) != test.shares {
				t.Errorf("shared: %v, want %v (%s)", got == first, test.shares, test.why)
			}
			want, err := PodSpec(other, around{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("not what the pod says by itself (%s):\n%s", test.why, diff)
			}
		})
	}
}

// TestTranslationsAreForgotten: owners come and go, and what is remembered of them is
// bounded.
func TestTranslationsAreForgotten(t *testing.T) {
	var specs translations
	for i := range sharedMost + 10 {
		p := pod("p", owned("apps/v1", "ReplicaSet"))
		p.OwnerReferences[0].UID = types.UID(fmt.Sprint(i))
		if _, err := specs.podSpec(p, around{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(specs.last); n > sharedMost {
		t.Errorf("%d owners are remembered, at most %d should be", n, sharedMost)
	}
}
