package disrupt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// rebooter is a cloud that can do nothing but reboot.
type rebooter struct {
	Cloud
	kube   client.Client
	asked  []string
	errors []error
}

// Reboot notes what it is asked for, and that each is written down already.
func (r *rebooter) Reboot(ctx context.Context, id string) error {
	r.asked = append(r.asked, id)
	var claim karpenter.NodeClaim
	if err := r.kube.Get(ctx, client.ObjectKey{Name: "claim-" + id}, &claim); err != nil {
		return err
	}
	if claim.Annotations[coppice.AnnotationRebooted] == "" {
		return fmt.Errorf("%s is rebooted before that is written down", id)
	}
	if len(r.errors) > 0 {
		return r.errors[0]
	}
	return nil
}

// ward is a pool of ten nodes, whose ill ones are repaired as time goes by.
type ward struct {
	*scene
	loop  *loop
	cloud *rebooter
	said  *events.FakeRecorder
}

func newWard(t *testing.T, alter func(*karpenter.NodePool), errs ...error) *ward {
	t.Helper()
	s := newScene(alter)
	var objects []client.Object
	for i := range 10 {
		name := fmt.Sprintf("n%d", i)
		s.machine("a", name, 2)
		s.run(name, "p-"+name, 2)
	}
	for _, n := range s.state.Snapshot().Nodes {
		objects = append(objects, n.Claim.DeepCopy())
	}
	kube := fake.NewClientBuilder().WithScheme(testkit.Scheme(t)).WithObjects(objects...).Build()
	for _, o := range objects {
		claim := &karpenter.NodeClaim{}
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(o), claim); err != nil {
			t.Fatal(err)
		}
		s.state.SetClaim(claim)
	}
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w := &ward{scene: s, cloud: &rebooter{kube: kube, errors: errs}, said: events.NewFakeRecorder(100)}
	w.loop = &loop{kube: kube, cloud: w.cloud, state: s.state, events: w.said, clock: clocktesting.NewFakeClock(now), metrics: m}
	return w
}

// condition gives a node a condition since then.
func (w *ward) condition(name string, typ corev1.NodeConditionType, status corev1.ConditionStatus, since time.Duration) {
	for _, n := range w.state.Snapshot().Nodes {
		if n.Node.Name != name {
			continue
		}
		node := n.Node.DeepCopy()
		node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == typ })
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: typ, Status: status, LastTransitionTime: metav1.NewTime(now.Add(since))})
		w.state.SetNode(node)
	}
}

// see decides after some time and has rebooted what is to be. It returns what was begun,
// and what keeps node n0.
func (w *ward) see(t *testing.T, after time.Duration) []string {
	t.Helper()
	asked := len(w.cloud.asked)
	w.alter = func(in *Input) { in.Now, in.NodeRepair = now.Add(after), true }
	w.loop.clock = clocktesting.NewFakeClock(now.Add(after))
	d := w.decide(t)
	err := w.loop.reboot(t.Context(), d.Reboot, byClaimName(w.state.Snapshot().Nodes))
	if (err != nil) != (len(w.cloud.errors) > 0 && len(d.Reboot) > 0) {
		t.Errorf("reboot: %v", err)
	}
	out := begun(d)
	for _, id := range w.cloud.asked[asked:] {
		out = append(out, "reboot "+id)
	}
	return append(out, code(d, "n0", unhealthy))
}

func TestRebootBeforeReplacement(t *testing.T) {
	const unknown, no, yes = corev1.ConditionUnknown, corev1.ConditionFalse, corev1.ConditionTrue
	type step struct {
		after time.Duration
		// before changes what the node tells.
		before func(*ward)
		want   []string
	}
	set := func(name string, typ corev1.NodeConditionType, status corev1.ConditionStatus, since time.Duration) func(*ward) {
		return func(w *ward) { w.condition(name, typ, status, since) }
	}
	lost := set("n0", corev1.NodeReady, unknown, -time.Hour)
	replaced := []string{"Unhealthy: claim-n0", "Starting"}
	tests := map[string]struct {
		why   string
		pool  string
		alter func(*karpenter.NodePool)
		fails []error
		steps []step
	}{
		"not asked for": {why: "as Karpenter", steps: []step{{0, lost, replaced}}},
		"tolerated":     {why: "for 30 minutes", pool: `{"reboot":true}`, steps: []step{{0, set("n0", corev1.NodeReady, no, -29*time.Minute), []string{"Tolerated"}}}},
		"of no use": {why: "it has ten minutes and is rebooted no second time", pool: `{"reboot":true}`, steps: []step{
			{0, lost, []string{"reboot n0", "Rebooted"}}, {time.Second, nil, []string{"Rebooted"}},
			{recovery - time.Second, nil, []string{"Rebooted"}}, {recovery, nil, replaced},
		}},
		"another condition since": {why: "what the reboot itself brings about isn't tolerated anew", pool: `{"reboot":true}`, steps: []step{
			{0, set("n0", "KernelReady", no, -time.Hour), []string{"reboot n0", "Rebooted"}},
			{time.Minute, set("n0", corev1.NodeReady, unknown, time.Minute), []string{"Rebooted"}},
			{5 * time.Minute, set("n0", "KernelReady", yes, 5*time.Minute), []string{"Rebooted"}},
			{recovery, nil, replaced},
		}},
		"cured": {why: "the next illness is tolerated as ever, but a second reboot would only put things off", pool: `{"reboot":true}`, steps: []step{
			{0, lost, []string{"reboot n0", "Rebooted"}}, {3 * time.Minute, set("n0", corev1.NodeReady, yes, 3*time.Minute), []string{"Healthy"}},
			{recovery, nil, []string{"Healthy"}},
			{24*time.Hour + 29*time.Minute, set("n0", corev1.NodeReady, no, 24*time.Hour), []string{"Tolerated"}},
			{24*time.Hour + 30*time.Minute, nil, replaced},
		}},
		"refused": {why: "the node has its time all the same", pool: `{"reboot":true}`, fails: []error{errors.New("UnauthorizedOperation")}, steps: []step{
			{0, lost, []string{"reboot n0", "Rebooted"}}, {time.Minute, nil, []string{"Rebooted"}}, {recovery, nil, replaced},
		}},
		"own toleration": {why: "shorter and longer than the default", pool: `{"tolerate":{"Ready":"5m","StorageReady":"2h"}}`, steps: []step{
			{0, set("n0", "StorageReady", no, -time.Hour), []string{"Tolerated"}},
			{5 * time.Minute, set("n0", corev1.NodeReady, no, 0), replaced},
		}},
		"vetoed": {why: "by who looks after the node", pool: `{"reboot":true}`, steps: []step{{0, func(w *ward) {
			lost(w)
			for _, n := range w.state.Snapshot().Nodes {
				node := n.Node.DeepCopy()
				node.Annotations = map[string]string{karpenter.AnnotationDoNotRepair: "true"}
				w.state.SetNode(node)
			}
		}, []string{"DoNotRepair"}}}},
		"paused": {why: "nothing begins", pool: `{"reboot":true}`, alter: func(p *karpenter.NodePool) {
			p.Annotations[sugar.AnnotationPause] = `{"until":"2026-01-06T00:00:00Z","author":"a","reason":"r"}`
		}, steps: []step{{0, lost, []string{"Paused"}}}},
		"many are ill": {why: "three of ten: the trouble is elsewhere", pool: `{"reboot":true}`, steps: []step{{0, func(w *ward) {
			for _, n := range []string{"n0", "n1", "n2"} {
				w.condition(n, corev1.NodeReady, unknown, -time.Hour)
			}
		}, []string{"TooManyUnhealthy"}}}},
		"budget": {why: "one of ten: the next has its turn once the first is well or gone", pool: `{"reboot":true}`, alter: func(p *karpenter.NodePool) {
			p.Spec.Disruption.Budgets = []karpenter.Budget{{Nodes: "1"}}
		}, steps: []step{
			{0, func(w *ward) { lost(w); w.condition("n1", corev1.NodeReady, unknown, -2*time.Hour) }, []string{"reboot n1", "Budget"}},
			{time.Minute, nil, []string{"Budget"}},
			{3 * time.Minute, set("n1", corev1.NodeReady, yes, 3*time.Minute), []string{"reboot n0", "Rebooted"}},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, func(p *karpenter.NodePool) {
				p.Annotations = map[string]string{}
				if tc.pool != "" {
					p.Annotations[sugar.AnnotationRepair] = tc.pool
				}
				if tc.alter != nil {
					tc.alter(p)
				}
			}, tc.fails...)
			for _, s := range tc.steps {
				if s.before != nil {
					s.before(w)
				}
				if diff := cmp.Diff(s.want, w.see(t, s.after)); diff != "" {
					t.Errorf("after %s (-want +got):\n%s%s", s.after, diff, tc.why)
				}
			}
			if len(w.said.Events) != len(w.cloud.asked) {
				t.Errorf("%d events about %d reboots", len(w.said.Events), len(w.cloud.asked))
			}
		})
	}
}

// A claim that somebody has written since may say already that it was rebooted.
func TestRebootOfAStaleClaim(t *testing.T) {
	w := newWard(t, func(*karpenter.NodePool) {})
	stale := byClaimName(w.state.Snapshot().Nodes)
	fresh := stale["claim-n0"].Claim.DeepCopy()
	fresh.Annotations = map[string]string{coppice.AnnotationRebooted: now.Format(time.RFC3339)}
	if err := w.loop.kube.Update(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if err := w.loop.reboot(t.Context(), []string{"claim-n0"}, stale); err == nil || len(w.cloud.asked) > 0 {
		t.Errorf("rebooted %v, %v", w.cloud.asked, err)
	}
}

func TestRepairConditionsAreThoseOfThePolicies(t *testing.T) {
	var have []string
	for _, p := range policies() {
		have = append(have, string(p.condition))
	}
	slices.Sort(have)
	if diff := cmp.Diff(sugar.RepairConditions(), slices.Compact(have)); diff != "" {
		t.Errorf("conditions that an author may name (-want +have):\n%s", diff)
	}
}

// TestRepairThatIsOff: a pool that wants repair is told once that there is none.
func TestRepairThatIsOff(t *testing.T) {
	for name, tc := range map[string]struct {
		why  string
		gate bool
		want int
	}{
		"off": {"each pass would say it again", false, 1},
		"on":  {"there is nothing to say", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t, func(p *karpenter.NodePool) {
				p.Annotations = map[string]string{sugar.AnnotationRepair: `{"reboot":true}`}
			})
			w.loop.gates.NodeRepair = tc.gate
			pools := map[string]Pool{"a": NewPool(w.pools[0])}
			w.loop.warn(pools)
			w.loop.warn(pools)
			if len(w.said.Events) != tc.want {
				t.Errorf("%d events, want %d: %s", len(w.said.Events), tc.want, tc.why)
			}
		})
	}
}
