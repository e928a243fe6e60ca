package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

var now = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func claim(alter ...func(*karpenter.NodeClaim)) *karpenter.NodeClaim {
	c := &karpenter.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "general-x", UID: "uid-1", Labels: map[string]string{karpenter.LabelNodePool: "general"}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}}
	for _, f := range alter {
		f(c)
	}
	return c
}

func node(alter ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "ip-10-0-0-1", Labels: map[string]string{"others": "stay"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{karpenter.UnregisteredTaint(), {Key: "others", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, f := range alter {
		f(n)
	}
	return n
}

func TestRegistration(t *testing.T) {
	c := claim(func(c *karpenter.NodeClaim) {
		c.Annotations = map[string]string{"note": "kept"}
		c.Spec.Taints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	})
	young := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	before := node(young)
	got := registration(c, before)
	if diff := cmp.Diff(node(young), before); diff != "" {
		t.Errorf("registration changed its argument:\n%s", diff)
	}
	wantTaints := []corev1.Taint{{Key: "others", Effect: corev1.TaintEffectNoSchedule}, {Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(wantTaints, got.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	wantLabels := map[string]string{"others": "stay", karpenter.LabelNodePool: "general", karpenter.LabelRegistered: "true"}
	if diff := cmp.Diff(wantLabels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got.Annotations["note"] != "kept" || !cmp.Equal(got.Finalizers, []string{karpenter.Finalizer}) || got.OwnerReferences[0].UID != c.UID {
		t.Errorf("annotations %v, finalizers %v, owners %v", got.Annotations, got.Finalizers, got.OwnerReferences)
	}
	if again := registration(c, got); !cmp.Equal(again, got) {
		t.Errorf("a second registration changes:\n%s", cmp.Diff(got, again))
	}
	if late := registration(c, node()); late.Labels[karpenter.LabelInitialized] != "true" {
		t.Error("a Node that is ready already isn't initialized with the same stroke")
	}
	synced := registration(c, node(func(n *corev1.Node) { n.Labels[karpenter.LabelDoNotSyncTaints] = "true" }))
	if cluster.HasTaint(synced, c.Spec.Taints[0]) {
		t.Error("a kubelet that registers its own taints got one put back")
	}
}

func TestMissing(t *testing.T) {
	startup := corev1.Taint{Key: "cni", Effect: corev1.TaintEffectNoExecute}
	registered := func(n *corev1.Node) { n.Spec.Taints = nil }
	tests := map[string]struct {
		why   string
		claim *karpenter.NodeClaim
		node  *corev1.Node
		want  string
	}{
		"ready":        {"nothing is missing", claim(), node(registered), ""},
		"not ready":    {"the kubelet says so", claim(), node(registered, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }), "NodeNotReady"},
		"no condition": {"a kubelet that hasn't spoken isn't ready", claim(), node(registered, func(n *corev1.Node) { n.Status.Conditions = nil }), "NodeNotReady"},
		"startup taint": {"its daemon hasn't removed it", claim(func(c *karpenter.NodeClaim) { c.Spec.StartupTaints = []corev1.Taint{startup} }),
			node(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{startup} }), "StartupTaintsExist"},
		"not-ready taint": {"the node lifecycle controller hasn't removed it", claim(),
			node(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
			}), "KnownEphemeralTaintsExist"},
		"no GPU yet": {"the device plugin hasn't registered it", claim(func(c *karpenter.NodeClaim) {
			c.Spec.Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
		}), node(registered), "ResourceNotRegistered"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _ := missing(tc.claim, tc.node); got != tc.want {
				t.Errorf("missing() = %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestNextDrain(t *testing.T) {
	yes := true
	pod := func(name string, alter ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "d"}}
		for _, f := range alter {
			f(&p)
		}
		return p
	}
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: &yes}}
	}
	critical := func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" }
	protected := func(p *corev1.Pod) {
		p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
	}
	going := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: at} }
	}
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	grace := func(s int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &s }
	}
	tests := map[string]struct {
		why         string
		pods        []corev1.Pod
		deadline    time.Duration // from now; 0 for none
		evict, kill string
		waiting     int
	}{
		"empty":                  {why: "nothing to do"},
		"ordinary first":         {why: "what others depend on goes last", pods: []corev1.Pod{pod("dns", critical), pod("b"), pod("a"), pod("cni", critical, daemon), pod("log", daemon)}, evict: "a b", waiting: 5},
		"then daemons":           {why: "no ordinary pod is left", pods: []corev1.Pod{pod("dns", critical), pod("log", daemon)}, evict: "log", waiting: 2},
		"group still going":      {why: "the next group waits until this one has left", pods: []corev1.Pod{pod("a", going(now)), pod("dns", critical)}, waiting: 2},
		"protected":              {why: "waited for, not evicted", pods: []corev1.Pod{pod("a", protected), pod("b")}, evict: "b", waiting: 2},
		"tolerates":              {why: "it asked to stay", pods: []corev1.Pod{pod("a", tolerant)}},
		"done":                   {why: "a finished pod holds nothing", pods: []corev1.Pod{pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}},
		"stuck":                  {why: "its kubelet won't finish it", pods: []corev1.Pod{pod("a", going(now.Add(-2*time.Minute)))}},
		"deadline far":           {why: "there is time for an orderly eviction", pods: []corev1.Pod{pod("a")}, deadline: time.Hour, evict: "a", waiting: 1},
		"deadline near":          {why: "30 s of grace don't fit any later", pods: []corev1.Pod{pod("a"), pod("b", grace(5))}, deadline: 20 * time.Second, kill: "a", evict: "b", waiting: 2},
		"deadline and protected": {why: "the deadline outranks do-not-disrupt", pods: []corev1.Pod{pod("a", protected)}, deadline: 10 * time.Second, kill: "a", waiting: 1},
		"grace too long":         {why: "it would end after the deadline", pods: []corev1.Pod{pod("a", going(now.Add(time.Hour)))}, deadline: time.Minute, kill: "a", waiting: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := nextDrain(tc.pods, now, now.Add(tc.deadline), tc.deadline > 0)
			if e, k := names(got.Evict), names(got.Delete); e != tc.evict || k != tc.kill || got.Waiting != tc.waiting {
				t.Errorf("nextDrain() evicts %q, deletes %q, waits for %d; want %q, %q, %d (%s)", e, k, got.Waiting, tc.evict, tc.kill, tc.waiting, tc.why)
			}
		})
	}
}

// TestNextDrainIsDue: a pod that isn't deleted yet is looked at again in time for its
// whole grace period.
func TestNextDrainIsDue(t *testing.T) {
	pod := func(grace int64) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	}
	step := nextDrain([]corev1.Pod{pod(5), pod(20), pod(90)}, now, now.Add(time.Minute), true)
	if want := now.Add(40 * time.Second); !step.Due.Equal(want) || len(step.Delete) != 1 || len(step.Evict) != 2 {
		t.Errorf("due at %s, %d pods to delete, %d to evict; want %s, the one that needs more than a minute, the others", step.Due, len(step.Delete), len(step.Evict), want)
	}
	if step := nextDrain([]corev1.Pod{pod(5)}, now, time.Time{}, false); !step.Due.IsZero() {
		t.Errorf("due at %s without a deadline", step.Due)
	}
}

func names(pods []corev1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func TestTermination(t *testing.T) {
	deleted := func(c *karpenter.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }
	bounded := func(c *karpenter.NodeClaim) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	}
	tests := map[string]struct {
		why     string
		claim   *karpenter.NodeClaim
		want    time.Time
		bounded bool
		wantErr bool
	}{
		"unbounded": {why: "no grace period waits for ever", claim: claim(deleted)},
		"bounded":   {why: "deletion plus an hour", claim: claim(deleted, bounded), want: now.Add(time.Hour), bounded: true},
		"annotated": {why: "the annotation is the last word", claim: claim(deleted, bounded, func(c *karpenter.NodeClaim) {
			c.Annotations = map[string]string{karpenter.AnnotationTerminationTimestamp: "2026-01-05T12:10:00Z"}
		}), want: now.Add(10 * time.Minute), bounded: true},
		"left over": {why: "an earlier deletion never came about", claim: claim(deleted, bounded, func(c *karpenter.NodeClaim) {
			c.Annotations = map[string]string{karpenter.AnnotationTerminationTimestamp: "2026-01-05T11:58:00Z"}
		}), want: now.Add(time.Hour), bounded: true},
		"written just before": {why: "it is for this deletion", claim: claim(deleted, func(c *karpenter.NodeClaim) {
			c.Annotations = map[string]string{karpenter.AnnotationTerminationTimestamp: "2026-01-05T11:59:58Z"}
		}), want: now.Add(-2 * time.Second), bounded: true},
		"garbled": {why: "somebody has to mend it", claim: claim(deleted, func(c *karpenter.NodeClaim) {
			c.Annotations = map[string]string{karpenter.AnnotationTerminationTimestamp: "soon"}
		}), wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok, err := termination(tc.claim)
			if !got.Equal(tc.want) || ok != tc.bounded || (err != nil) != tc.wantErr {
				t.Errorf("termination() = %v, %v, %v; want %v, %v (%s)", got, ok, err, tc.want, tc.bounded, tc.why)
			}
		})
	}
}

func TestCompareClaims(t *testing.T) {
	launched := func(id types.UID, providerID string, ago time.Duration) karpenter.NodeClaim {
		c := claim(func(c *karpenter.NodeClaim) {
			c.UID, c.Name, c.Status.ProviderID = id, string(id), providerID
			c.Status.Conditions = []metav1.Condition{{Type: karpenter.ConditionLaunched, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
		})
		return *c
	}
	instance := func(id, uid string, age time.Duration, state string) cloud.Instance {
		return cloud.Instance{ID: id, ProviderID: "aws:///z/" + id, State: state, LaunchTime: now.Add(-age), ClaimUID: uid}
	}
	claims := []karpenter.NodeClaim{
		launched("with-instance", "aws:///z/i-1", time.Hour),
		launched("not-written-yet", "", time.Hour),
		launched("instance-gone", "aws:///z/i-9", time.Hour),
		launched("just-launched", "aws:///z/i-8", time.Second),
	}
	instances := []cloud.Instance{
		instance("i-1", "with-instance", time.Hour, "running"),
		instance("i-2", "not-written-yet", time.Hour, "running"),
		instance("i-3", "nobody", time.Hour, "running"),
		instance("i-4", "nobody", time.Second, "pending"),
		instance("i-5", "nobody", time.Hour, "shutting-down"),
	}
	lost, gone := compareClaims(claims, instances, now)
	var lostIDs, goneNames []string
	for _, i := range lost {
		lostIDs = append(lostIDs, i.ID)
	}
	for _, c := range gone {
		goneNames = append(goneNames, c.Name)
	}
	if diff := cmp.Diff([]string{"i-3"}, lostIDs); diff != "" {
		t.Errorf("lost instances (-want +got): only an old one that is no claim's\n%s", diff)
	}
	if diff := cmp.Diff([]string{"instance-gone"}, goneNames); diff != "" {
		t.Errorf("claims without an instance (-want +got):\n%s", diff)
	}
}

func TestOverdue(t *testing.T) {
	limits := Timeouts{Launch: 5 * time.Minute, Registration: 15 * time.Minute, Initialization: 30 * time.Minute}
	aged := func(age time.Duration) func(*karpenter.NodeClaim) {
		return func(c *karpenter.NodeClaim) { c.CreationTimestamp = metav1.NewTime(now.Add(-age)) }
	}
	reached := func(condition string, ago time.Duration) func(*karpenter.NodeClaim) {
		return func(c *karpenter.NodeClaim) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))})
		}
	}
	tests := map[string]struct {
		why    string
		claim  *karpenter.NodeClaim
		limits Timeouts
		step   string
		next   time.Duration
	}{
		"new":            {"five minutes to launch", claim(aged(time.Minute)), limits, "", 4 * time.Minute},
		"never launched": {"five minutes are over", claim(aged(5 * time.Minute)), limits, karpenter.ConditionLaunched, 0},
		"launched":       {"counted from the launch, not from the creation", claim(aged(time.Hour), reached(karpenter.ConditionLaunched, 14*time.Minute)), limits, "", time.Minute},
		"never joined":   {"the machine is lost", claim(aged(time.Hour), reached(karpenter.ConditionLaunched, 15*time.Minute)), limits, karpenter.ConditionRegistered, 0},
		"never ready": {"a startup taint that nobody removes", claim(aged(time.Hour), reached(karpenter.ConditionLaunched, time.Hour), reached(karpenter.ConditionRegistered, 31*time.Minute)),
			limits, karpenter.ConditionInitialized, 0},
		"ready":    {"nothing is due", claim(reached(karpenter.ConditionLaunched, time.Hour), reached(karpenter.ConditionRegistered, time.Hour), reached(karpenter.ConditionInitialized, time.Hour)), limits, "", 0},
		"no limit": {"0 is for ever", claim(aged(1000 * time.Hour)), Timeouts{}, "", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if step, next := tc.limits.overdue(tc.claim, now); step != tc.step || next != tc.next {
				t.Errorf("overdue() = %q, %s; want %q, %s (%s)", step, next, tc.step, tc.next, tc.why)
			}
		})
	}
}

func TestWaits(t *testing.T) {
	tests := map[string]struct {
		why     string
		waiting int
		blocked map[string]string
		want    string
	}{
		"leaving": {"they go by themselves", 3, nil, ""},
		"one":     {"who and why", 1, map[string]string{"a/b": "PodDisruptionBudget"}, "waits for 1 pod; a/b is kept by PodDisruptionBudget"},
		"many":    {"the first few by name", 9, map[string]string{"d/4": "x", "d/1": "x", "d/3": "x", "d/2": "x", "d/5": "x"}, "waits for 9 pods; d/1 is kept by x; d/2 is kept by x; d/3 is kept by x; and 2 more that don't leave"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := waits(tc.waiting, tc.blocked); got != tc.want {
				t.Errorf("waits() = %q, want %q (%s)", got, tc.want, tc.why)
			}
		})
	}
}

func TestRoomy(t *testing.T) {
	size := func(name, cpu string) cloud.InstanceType {
		return cloud.InstanceType{Name: name, Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	types := []cloud.InstanceType{size("small", "2"), size("big", "8")}
	ask := func(name corev1.ResourceName, q string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(q)}
	}
	for want, requests := range map[string]corev1.ResourceList{"small big": nil, "big": ask("cpu", "3"), "": ask("nvidia.com/gpu", "1")} {
		var got []string
		for _, x := range roomy(append([]cloud.InstanceType(nil), types...), requests) {
			got = append(got, x.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("roomy(%v) = %q, want %q", requests, got, want)
		}
	}
}

// TestNoType says of claims that no type is for what is nearest.
func TestNoType(t *testing.T) {
	type need = karpenter.NodeSelectorRequirementWithMinValues
	size := func(name, cpu, memory string, available bool) cloud.InstanceType {
		return cloud.InstanceType{
			Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: name}, Offerings: []cloud.Offering{{CapacityType: cloud.OnDemand, Zone: "z1", Available: available}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		}
	}
	types := []cloud.InstanceType{size("m5.large", "1930m", "7Gi", true), size("c5.xlarge", "3920m", "6Gi", true), size("c5.4xlarge", "15890m", "28Gi", false)}
	only := func(names ...string) []need {
		return []need{{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: names}}
	}
	tests := map[string]struct {
		why         string
		need        []need
		cpu, memory string
		want        string
	}{
		"too small":    {"a person asked for too much", only("m5.large"), "100", "1Gi", "too small (m5.large): 100 of cpu is asked for, and the most that one has allocatable is 1930m"},
		"a gap":        {"one has the cores, another the memory", only("m5.large", "c5.xlarge"), "3", "7Gi", "none has all that is asked for together"},
		"sold out":     {"it will come back", nil, "8", "1Gi", "is sold out (c5.4xlarge)"},
		"none meets":   {"a type that isn't offered", only("m9.large"), "1", "1Gi", "none of the 3 instance types that the class offers meets"},
		"both too few": {"each is named", only("m5.large"), "100", "100Gi", "7Gi"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := claim(func(c *karpenter.NodeClaim) {
				c.Spec.Requirements = tc.need
				c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(tc.cpu), corev1.ResourceMemory: resource.MustParse(tc.memory)}
			})
			if got := (&cloud.InsufficientCapacityError{Reason: noType(types, c)}).Error(); !strings.Contains(got, tc.want) || strings.Contains(got, "0 offerings") {
				t.Errorf("%q, want %q in it (%s)", got, tc.want, tc.why)
			}
		})
	}
}

// TestCatchUp: until the watch has delivered what was written here, that counts.
func TestCatchUp(t *testing.T) {
	at := func(version string, uid types.UID) *karpenter.NodeClaim {
		return claim(func(c *karpenter.NodeClaim) {
			c.ResourceVersion, c.UID, c.Status.NodeName = version, uid, "as of "+version
		})
	}
	r := &Reconciler{}
	for _, step := range []struct {
		why     string
		written *karpenter.NodeClaim
		read    *karpenter.NodeClaim
		want    string
	}{
		{"nothing was written", nil, at("9", "u"), "as of 9"},
		{"the watch is behind", at("10", "u"), at("9", "u"), "as of 10"},
		{"it has caught up", nil, at("10", "u"), "as of 10"},
		{"what was written is forgotten", nil, at("9", "u"), "as of 9"},
		{"another of the same name", at("12", "u"), at("11", "v"), "as of 11"},
	} {
		if step.written != nil {
			r.written.Store(step.written.Name, step.written)
		}
		r.catchUp(step.read)
		if got := step.read.Status.NodeName; got != step.want {
			t.Errorf("the claim %s, want %s: %s", got, step.want, step.why)
		}
	}
}

func TestStamp(t *testing.T) {
	at := func(kind string, status metav1.ConditionStatus, after time.Duration) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(now.Add(after))}
	}
	before := []metav1.Condition{at("Old", "True", -time.Hour), at("Turns", "Unknown", -time.Hour), at("Fast", "True", time.Hour), at("Skewed", "True", time.Second)}
	after := []metav1.Condition{at("Old", "True", -time.Hour), at("Turns", "True", time.Minute), at("Fast", "True", time.Hour), at("Skewed", "True", time.Second), at("New", "True", time.Minute)}
	want := []metav1.Condition{at("Old", "True", -time.Hour), at("Turns", "True", 0), at("Fast", "True", 0), at("Skewed", "True", time.Second), at("New", "True", 0)}
	if stamp(before, after, now); !cmp.Equal(after, want) {
		t.Errorf("stamp (-want +got):\n%s", cmp.Diff(want, after))
	}
}
