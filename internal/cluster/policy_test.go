package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// planOf plans for pods on a state that has the given pools and nothing else.
func planOf(t *testing.T, pools []Pool, o pack.Options, pods ...*corev1.Pod) *pack.Plan {
	t.Helper()
	s, m := NewState(clocktesting.NewFakePassiveClock(time.Unix(0, 0))), NewModel()
	for _, p := range pods {
		s.SetPod(p)
	}
	if err := m.Sync(s, pools); err != nil {
		t.Fatal(err)
	}
	for k, err := range m.Refused() {
		t.Fatalf("pod %s is refused: %v", k, err)
	}
	return m.Plan(o)
}

func asks(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
	}
}

// apart prefers not to share a node with others like it.
func apart(p *corev1.Pod) {
	p.Labels = map[string]string{"app": "a"}
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}},
	}}}}
}

func annotated(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationPreferencePolicy: value} }
}

func TestPreferencePolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		why      string
		policy   pack.Policy
		annotate []func(*corev1.Pod)
		nodes    int
	}{
		"priced":            {"a preference of weight 1 isn't worth a node", pack.Priced, nil, 1},
		"respected":         {"as long as there is a way, the preference holds", pack.Respect, nil, 3},
		"ignored":           {"as if it weren't there", pack.Ignore, nil, 1},
		"respected by pods": {"the pods' annotation wins over the controller's policy", pack.Priced, []func(*corev1.Pod){annotated("Respect")}, 3},
		"ignored by pods":   {"and the other way round", pack.Respect, []func(*corev1.Pod){annotated("Ignore")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			alter := append([]func(*corev1.Pod){unschedulable, asks("500m"), apart}, tc.annotate...)
			plan := planOf(t, testPools(), pack.Options{Preferences: tc.policy}, pod("a", alter...), pod("b", alter...), pod("c", alter...))
			if len(plan.NewNodes) != tc.nodes || len(plan.Unschedulable) > 0 {
				t.Errorf("%d nodes, want %d (%s): %+v", len(plan.NewNodes), tc.nodes, tc.why, plan)
			}
		})
	}
}

// TestPreferencePolicyOfPools has a dear pool beside a cheap one.
func TestPreferencePolicyOfPools(t *testing.T) {
	for name, tc := range map[string]struct {
		why         string
		policy      pack.Policy
		cheap, dear string
		annotate    []func(*corev1.Pod)
		nodes       map[string]int
	}{
		"one ignores":        {"where preferences don't count, one cheap node does", pack.Respect, "Ignore", "", nil, map[string]int{"a": 1}},
		"one respects":       {"two more nodes of the cheap pool are worth it there", pack.Ignore, "Respect", "Respect", nil, map[string]int{"a": 3}},
		"respects beside":    {"sharing the dear node costs less than a preference that must hold", pack.Ignore, "Respect", "", nil, map[string]int{"a": 3}},
		"pods have the word": {"a pod's own policy goes before its pool's", pack.Ignore, "Ignore", "Ignore", []func(*corev1.Pod){annotated("Respect")}, map[string]int{"a": 3}},
		"unknown word":       {"it leaves the controller's", pack.Respect, "Perhaps", "", nil, map[string]int{"a": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			cheap, dear := testPools()[0], testPools()[0]
			dear.NodePool = dear.NodePool.DeepCopy()
			dear.Name, dear.UID = "dear", "dear"
			dear.Types = slices.Clone(dear.Types)
			for i := range dear.Types {
				dear.Types[i].Offerings = slices.Clone(dear.Types[i].Offerings)
				for j := range dear.Types[i].Offerings {
					dear.Types[i].Offerings[j].MicroUSD *= 10
				}
			}
			for pool, word := range map[*karpenter.NodePool]string{cheap.NodePool: tc.cheap, dear.NodePool: tc.dear} {
				if word != "" {
					pool.Annotations = map[string]string{AnnotationPreferencePolicy: word}
				}
			}
			alter := append([]func(*corev1.Pod){unschedulable, asks("500m"), apart}, tc.annotate...)
			plan := planOf(t, []Pool{cheap, dear}, pack.Options{Preferences: tc.policy}, pod("a", alter...), pod("b", alter...), pod("c", alter...))
			got := map[string]int{}
			for _, n := range plan.NewNodes {
				got[n.Pool]++
			}
			if diff := cmp.Diff(tc.nodes, got); diff != "" || len(plan.Unschedulable) > 0 {
				t.Errorf("%s: %s\n%+v", tc.why, diff, plan)
			}
		})
	}
}

func TestUnknownPreferencePolicyIsSaid(t *testing.T) {
	_, err := PodSpec(pod("a", annotated("Maybe")), nil)
	want := `pod d/a: annotation coppice.dev/preference-policy: preference policy "Maybe" isn't known; give Priced, Respect or Ignore`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMinValuesPolicies(t *testing.T) {
	three := 3
	pools := testPools()
	pools[0].Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists, MinValues: &three}}
	p := pod("a", unschedulable, asks("500m"))
	if plan := planOf(t, pools, pack.Options{}, p); len(plan.NewNodes) != 0 || plan.Unschedulable[0].Reasons[0].Cause != pack.MinValuesUnmet {
		t.Errorf("strict: %+v", plan)
	}
	if plan := planOf(t, pools, pack.Options{MinValues: pack.BestEffort}, p); len(plan.NewNodes) != 1 || !plan.NewNodes[0].Relaxed {
		t.Errorf("best effort: %+v", plan)
	}
}

func TestReservedCapacityIsCountedAndUnavailableSkipped(t *testing.T) {
	pools := testPools()
	small := &pools[0].Types[0]
	small.Offerings = append([]cloud.Offering{{CapacityType: cloud.Reserved, Zone: "z1", ZoneID: "id1", MicroUSD: 1, Available: true, ReservationID: "cr-1", ReservedCount: 2}}, small.Offerings...)
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c"} {
		pods = append(pods, pod(name, unschedulable, asks("1500m")))
	}
	reserved := func() (n int) {
		for _, node := range planOf(t, pools, pack.Options{}, pods...).NewNodes {
			if node.ReservationID == "cr-1" {
				n++
			}
		}
		return n
	}
	if n := reserved(); n != 2 {
		t.Errorf("%d nodes take the reservation of two", n)
	}
	pools = testPools()
	for i := range pools[0].Types[0].Offerings {
		pools[0].Types[0].Offerings[i].Available = false
	}
	plan := planOf(t, pools, pack.Options{}, pods[0])
	if len(plan.NewNodes) != 1 || plan.NewNodes[0].Options[0].Type != "m5.xlarge" || len(plan.NewNodes[0].Options) != 1 {
		t.Errorf("what can't be had is planned: %+v", plan)
	}
}

// TestRunningPodsKeepTheirRoom: whatever has become of a running pod's claim, its
// requests count.
func TestRunningPodsKeepTheirRoom(t *testing.T) {
	s, m := NewState(clocktesting.NewFakePassiveClock(time.Unix(0, 0))), NewModel()
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: amounts("2", "10"), Allocatable: amounts("2", "10")}})
	s.SetPod(pod("old", on("n"), asks("1500m"), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}}}}
	}))
	s.SetPod(pod("new", unschedulable, asks("1")))
	if err := m.Sync(s, nil); err != nil {
		t.Fatal(err)
	}
	if plan := m.Plan(pack.Options{}); len(plan.Assignments) != 0 || len(m.Refused()) != 0 {
		t.Errorf("the running pod's room is given away: %+v, refused %v", plan.Assignments, m.Refused())
	}
}

// TestPodsFollowTheirSurroundings: what a selector of namespaces or a claim means is
// found anew when namespaces or claims change, and only then.
func TestPodsFollowTheirSurroundings(t *testing.T) {
	s, m := NewState(clocktesting.NewFakePassiveClock(time.Unix(0, 0))), NewModel()
	p := pod("a", unschedulable, asks("1"), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "late"}}}}
	})
	s.SetPod(p)
	pools := testPools()
	sync := func() int {
		if err := m.Sync(s, pools); err != nil {
			t.Fatal(err)
		}
		return len(m.Refused())
	}
	if sync() != 1 {
		t.Fatal("a pod is planned whose claim doesn't exist")
	}
	s.Set(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
	s.Set(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "late", UID: types.UID("c")}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}})
	if sync() != 0 || m.Pending() != 1 {
		t.Error("the claim that came isn't found")
	}
	if len(m.scoped) != 1 {
		t.Error("the pod is no longer looked after")
	}
}

// TestDaemonsOfAnOpenType has a claim that may become either of two types, for one of
// which a daemon asks.
func TestDaemonsOfAnOpenType(t *testing.T) {
	for arch, assigned := range map[string]int{"amd64": 0, "s390x": 1} {
		pools := testPools()
		arm := pools[0].Types[0]
		arm.Name, arm.Labels = "m5.xlarge", map[string]string{corev1.LabelInstanceTypeStable: "m5.xlarge", corev1.LabelArchStable: "arm64"}
		pools[0].Types[0].Labels[corev1.LabelArchStable] = "amd64"
		pools[0].Types = []cloud.InstanceType{pools[0].Types[0], arm}
		s, m := NewState(clocktesting.NewFakePassiveClock(time.Unix(0, 0))), NewModel()
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "agent", UID: "agent"}}
		agent := pod("agent", asks("500m"))
		d.Spec.Template.Spec = agent.Spec
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: arch}
		s.SetDaemonSet(d)
		s.SetClaim(poolClaim("a-1"))
		s.SetPod(pod("p", unschedulable, asks("1500m")))
		if err := m.Sync(s, pools); err != nil {
			t.Fatal(err)
		}
		if plan := m.Plan(pack.Options{}); len(plan.Assignments) != assigned {
			t.Errorf("a daemon for %s: %d pods go to the claim, want %d: %+v", arch, len(plan.Assignments), assigned, plan)
		}
	}
}
