package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

var now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func pod(name string, alter ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, Labels: map[string]string{"app": "web", "rev": "7"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}},
	}
	for _, f := range alter {
		f(p)
	}
	return p
}

func unschedulable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func owned(apiVersion, kind string) func(*corev1.Pod) {
	yes := true
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Controller: &yes}}
	}
}

func TestPredicates(t *testing.T) {
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	done := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	tests := map[string]struct {
		why                          string
		pod                          *corev1.Pod
		provisionable, reschedulable bool
	}{
		"pending":                {"the scheduler found no place", pod("p", unschedulable), true, true},
		"not tried yet":          {"the scheduler may still find a place", pod("p"), false, true},
		"nominated":              {"preemption is making room", pod("p", unschedulable, func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }), false, true},
		"gated":                  {"it doesn't want to run yet", pod("p", func(p *corev1.Pod) { unschedulable(p); p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }), false, true},
		"bound":                  {"it has a node", pod("p", unschedulable, on("n")), false, true},
		"daemon":                 {"its nodes come without it", pod("p", unschedulable, owned("apps/v1", "DaemonSet")), false, false},
		"mirror":                 {"its kubelet owns it", pod("p", owned("v1", "Node")), false, false},
		"deleted":                {"on its way out", pod("p", unschedulable, deleted), false, false},
		"deleted, StatefulSet's": {"its successor has its name", pod("p", on("n"), deleted, owned("apps/v1", "StatefulSet")), false, true},
		"done":                   {"it will never run again", pod("p", unschedulable, done), false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Provisionable(tc.pod); got != tc.provisionable {
				t.Errorf("Provisionable() = %v (%s)", got, tc.why)
			}
			if got := Reschedulable(tc.pod); got != tc.reschedulable {
				t.Errorf("Reschedulable() = %v (%s)", got, tc.why)
			}
		})
	}
}

func TestDoNotDisrupt(t *testing.T) {
	started := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: now.Add(-ago)} }
	}
	says := func(v string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: v} }
	}
	tests := map[string]struct {
		why  string
		pod  *corev1.Pod
		want bool
	}{
		"no":           {"no annotation", pod("p"), false},
		"yes":          {"true", pod("p", says("true")), true},
		"within":       {"ten minutes of an hour", pod("p", says("1h"), started(10*time.Minute)), true},
		"past":         {"two hours of one", pod("p", says("1h"), started(2*time.Hour)), false},
		"not started":  {"its hour hasn't begun", pod("p", says("1h")), true},
		"neither":      {"what can't be read protects nothing", pod("p", says("yes")), false},
		"finished pod": {"nothing to protect", pod("p", says("true"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := DoNotDisrupt(tc.pod, now); got != tc.want {
				t.Errorf("DoNotDisrupt() = %v, want %v (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestStateWakesOnceForEachNewPod(t *testing.T) {
	s := NewState(clocktesting.NewFakePassiveClock(now))
	woke := func() bool {
		select {
		case <-s.Changed():
			return true
		default:
			return false
		}
	}
	steps := []struct {
		why  string
		do   func()
		want bool
	}{
		{"a pod that the scheduler hasn't tried needs nothing", func() { s.SetPod(pod("a")) }, false},
		{"now it does", func() { s.SetPod(pod("a", unschedulable)) }, true},
		{"the scheduler repeats itself", func() { s.SetPod(pod("a", unschedulable)) }, false},
		{"two more share one wake", func() { s.SetPod(pod("b", unschedulable)); s.SetPod(pod("c", unschedulable)) }, true},
		{"bound", func() { s.SetPod(pod("a", on("n"))) }, false},
		{"a claim that goes frees its pods", func() {
			s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x", DeletionTimestamp: &metav1.Time{Time: now}}})
		}, true},
	}
	for _, step := range steps {
		step.do()
		if got := woke(); got != step.want {
			t.Errorf("woke = %v: %s", got, step.why)
		}
		if woke() {
			t.Errorf("woke twice: %s", step.why)
		}
	}
}

func TestStateIgnoresWhatIsOlderThanItKnows(t *testing.T) {
	s := NewState(clocktesting.NewFakePassiveClock(now))
	at := func(version, node string) *karpenter.NodeClaim {
		return &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: version}, Status: karpenter.NodeClaimStatus{NodeName: node}}
	}
	s.SetClaim(at("9", "old"))
	s.SetClaim(at("10", "new"))
	s.SetClaim(at("9", "old"))
	if got := s.Snapshot().Nodes[0].Claim.Status.NodeName; got != "new" {
		t.Errorf("claim of version 9 replaced the one of version 10")
	}
}

func TestOfPool(t *testing.T) {
	s := NewState(clocktesting.NewFakePassiveClock(now))
	for name, pool := range map[string]string{"b": "web", "a": "web", "c": "other", "lone": ""} {
		s.SetClaim(&karpenter.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpenter.LabelNodePool: pool}},
			Status:     karpenter.NodeClaimStatus{ProviderID: "aws:///z/" + name},
		})
		s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/" + name}})
	}
	var got []string
	for _, n := range s.Of("web") {
		got = append(got, n.Claim.Name+" "+n.Node.Name)
	}
	if want := []string{"a node-a", "b node-b"}; !slices.Equal(got, want) {
		t.Errorf("machines of the pool: %q, want %q", got, want)
	}
}

// TestStateForgetsWhatIsGone: whoever wrote an object tells of it here and may be
// overtaken by the watch, which has told of the object's end.
func TestStateForgetsWhatIsGone(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now)
	s := NewState(clk)
	claim := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "1"}}
	count := func(why string, want int) {
		t.Helper()
		if got := len(s.Snapshot().Nodes); got != want {
			t.Errorf("%d machines, want %d: %s", got, want, why)
		}
	}
	s.SetClaim(claim)
	s.DeleteClaim("x")
	s.Expect(claim)
	count("its end was seen before its creator told of it", 0)
	s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "v", ResourceVersion: "9"}})
	count("another of the same name", 1)
	s.DeleteClaim("x")

	s.Expect(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "y", UID: "y"}})
	s.Expect(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "z", UID: "z"}})
	s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "z", UID: "z", ResourceVersion: "1"}})
	m := NewModel()
	if err := m.Sync(s, nil); err != nil {
		t.Fatal(err)
	}
	count("the watch may be a moment behind", 2)
	clk.SetTime(now.Add(lag))
	if err := m.Sync(s, nil); err != nil {
		t.Fatal(err)
	}
	count("y was deleted in a gap of the watch, or it would have been seen", 1)
	s.DeleteClaim("z")
	if len(s.gone.at) != 1 {
		t.Errorf("%d graves are kept, want the last minute's alone", len(s.gone.at))
	}

	p := pod("p", func(p *corev1.Pod) { p.UID, p.ResourceVersion = "p", "9" })
	s.SetPod(p)
	s.SetPod(pod("p", unschedulable, func(p *corev1.Pod) { p.UID, p.ResourceVersion = "p", "8" }))
	if len(s.Snapshot().Pending) != 0 {
		t.Error("a pod of version 8 replaced the one of version 9")
	}
	s.DeletePod(key(p))
	s.SetPod(p)
	if s.Snapshot().Unbound != 0 {
		t.Error("a pod came back after its end")
	}
}

// TestMovedSurvivesRestart reads pods that were bound before the state existed.
func TestMovedSurvivesRestart(t *testing.T) {
	s := NewState(clocktesting.NewFakePassiveClock(now))
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	ago := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-d))}}
		}
	}
	for _, step := range []struct {
		why  string
		pod  *corev1.Pod
		want time.Time
	}{
		{"bound an hour ago", pod("a", on("n"), ago(time.Hour)), now.Add(-time.Hour)},
		{"an older one changes nothing", pod("b", on("n"), ago(2*time.Hour)), now.Add(-time.Hour)},
		{"one that doesn't say counts from now", pod("c", on("n")), now},
	} {
		s.SetPod(step.pod)
		if got := s.Snapshot().Nodes[0].Moved; !got.Equal(step.want) {
			t.Errorf("moved %v, want %v (%s)", got, step.want, step.why)
		}
	}
}

func TestSnapshotJoinsClaimsAndNodes(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now)
	s := NewState(clk)
	s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "joined"}, Status: karpenter.NodeClaimStatus{ProviderID: "aws:///z/i-1"}})
	s.SetClaim(&karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "alone"}})
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-1"}})
	s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i-2"}})
	s.SetPod(pod("b", on("n1")))
	s.SetPod(pod("a", on("n1")))
	s.SetPod(pod("a", on("n1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	s.Nominate("joined", now.Add(time.Second))
	got := map[string][]string{}
	for _, n := range s.Snapshot().Nodes {
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Name)
		}
		got[n.Name()] = pods
		if n.Name() == "n1" && (n.Claim == nil || !n.NominatedUntil.Equal(now.Add(time.Second)) || !n.Moved.Equal(now)) {
			t.Errorf("n1: claim %v, nominated until %v, moved %v", n.Claim, n.NominatedUntil, n.Moved)
		}
	}
	if diff := cmp.Diff(map[string][]string{"n1": {"b"}, "n2": nil, "alone": nil}, got, cmp.Transformer("empty", func(s []string) int { return len(s) })); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	s.DeletePod(key(pod("b")))
	for _, n := range s.Snapshot().Nodes {
		if len(n.Pods) != 0 {
			t.Errorf("%s still has pods", n.Name())
		}
	}
}

func TestTaintsOfANodeOnItsWay(t *testing.T) {
	team := corev1.Taint{Key: "team", Effect: corev1.TaintEffectNoSchedule}
	cni := corev1.Taint{Key: "cni", Effect: corev1.TaintEffectNoExecute}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	c := &karpenter.NodeClaim{Spec: karpenter.NodeClaimSpec{Taints: []corev1.Taint{team}, StartupTaints: []corev1.Taint{cni}}}
	n := func(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	registered := map[string]string{karpenter.LabelRegistered: "true"}
	initialized := map[string]string{karpenter.LabelRegistered: "true", karpenter.LabelInitialized: "true"}
	tests := map[string]struct {
		why  string
		node Node
		want []corev1.Taint
	}{
		"claim only":      {"what it will have in the end", Node{Claim: c}, []corev1.Taint{team}},
		"registered":      {"startup and platform taints will go", Node{Claim: c, Node: n(registered, team, cni, notReady)}, []corev1.Taint{team}},
		"initialized":     {"what is there now stays", Node{Claim: c, Node: n(initialized, team, notReady)}, []corev1.Taint{team, notReady}},
		"somebody else's": {"nobody promised that taints go", Node{Node: n(nil, cni)}, []corev1.Taint{cni}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.node.Taints()); diff != "" {
				t.Errorf("Taints() (-want +got), %s:\n%s", tc.why, diff)
			}
		})
	}
}

func TestPodSpec(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	honor := corev1.NodeInclusionPolicyHonor
	minDomains := int32(2)
	p := pod("p", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{
			Name: "sidecar", RestartPolicy: &always,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}},
			Ports:     []corev1.ContainerPort{{HostPort: 9100}},
		}}
		p.Spec.NodeSelector = map[string]string{"beta.kubernetes.io/arch": "amd64"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
		p.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z1"}}}},
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}},
			}}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
			}},
		}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, MinDomains: &minDomains, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MatchLabelKeys: []string{"rev"}, NodeTaintsPolicy: &honor,
		}}
	})
	s := NewState(clocktesting.NewFakePassiveClock(now))
	for name, team := range map[string]string{"ns1": "a", "ns2": "a", "ns3": "b"} {
		s.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}})
	}
	got, err := PodSpec(p, around{s})
	if err != nil {
		t.Fatal(err)
	}
	app := pack.Requirement{Key: "app", Operator: pack.In, Values: []string{"web"}}
	want := &pack.PodSpec{
		Requests:     pack.Resources{pack.CPU: 1250, pack.Memory: 1 << 30},
		NodeSelector: []pack.Requirement{{Key: corev1.LabelArchStable, Operator: pack.In, Values: []string{"amd64"}}},
		Affinity: [][]pack.Requirement{
			{{Key: pack.LabelZone, Operator: pack.In, Values: []string{"z1"}}},
			{{Key: pack.FieldName, Operator: pack.In, Values: []string{"n"}}},
		},
		Tolerations: []pack.Toleration{{Key: "team", Exists: true}},
		PodAntiAffinity: []pack.PodTerm{{
			TopologyKey: pack.LabelHostname, Namespaces: []string{"ns1", "ns2"}, Selector: pack.Selector{Requirements: []pack.Requirement{app}},
		}},
		Spread: []pack.Spread{{
			TopologyKey: pack.LabelZone, MaxSkew: 1, MinDomains: 2, HonorTaints: true,
			Selector: pack.Selector{Requirements: []pack.Requirement{app, {Key: "rev", Operator: pack.In, Values: []string{"7"}}}},
		}},
		HostPorts: []pack.HostPort{{Protocol: "TCP", Port: 9100}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("PodSpec() (-want +got):\n%s", diff)
	}
}
