package metrics

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cluster"
)

// TestLoads reads nodes whose pods come, change and go.
func TestLoads(t *testing.T) {
	yes := true
	pod := func(name, version, cpu string, daemon bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name), ResourceVersion: version}}
		if daemon {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}}
		}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}
		return p
	}
	var l loads
	for _, step := range []struct {
		why           string
		pods          []*corev1.Pod
		want, daemons string
	}{
		{"the first reading", []*corev1.Pod{pod("a", "1", "1", false), pod("d", "2", "100m", true)}, "1", "100m"},
		{"nothing has changed", []*corev1.Pod{pod("a", "1", "1", false), pod("d", "2", "100m", true)}, "1", "100m"},
		{"one was resized in place", []*corev1.Pod{pod("a", "3", "2", false), pod("d", "2", "100m", true)}, "2", "100m"},
		{"another came", []*corev1.Pod{pod("a", "3", "2", false), pod("b", "4", "3", false), pod("d", "2", "100m", true)}, "5", "100m"},
		{"all but the daemon went", []*corev1.Pod{pod("d", "2", "100m", true)}, "0", "100m"},
	} {
		r := l.begin()
		got := r.of(cluster.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, Pods: step.pods})
		r.end()
		cpu, daemons := got.pods["cpu"], got.daemons["cpu"]
		if cpu.Cmp(resource.MustParse(step.want)) != 0 || daemons.Cmp(resource.MustParse(step.daemons)) != 0 {
			t.Errorf("%s: pods %s and daemons %s, want %s and %s", step.why, cpu.String(), daemons.String(), step.want, step.daemons)
		}
	}
	l.begin().end()
	if len(l.last) != 0 {
		t.Errorf("%d nodes that are gone are remembered", len(l.last))
	}
}
