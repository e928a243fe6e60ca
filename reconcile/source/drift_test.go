package source

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// testUnrelated: a commit that says nothing new about an object doesn't undo
// what somebody changed in it by hand, and one that does, does.
func testUnrelated(t *testing.T, w *world) {
	p := w.place(t, "unrelated", nil)
	p.commit(p.tree(map[string]int{"a": 100, "b": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"7"}}}`)
	before := p.pass()
	commits := p.commits("coppice/drift")

	p.commit(map[string]string{"README.md": "words\n"})
	src := p.pass()
	if src.Status.LastAppliedRevision == before.Status.LastAppliedRevision {
		t.Error("the commit isn't applied")
	}
	if got := p.cpu("a"); got != "7" {
		t.Errorf("an unrelated commit made it %s", got)
	}
	if n := p.commits("coppice/drift"); n != commits {
		t.Errorf("an unrelated commit made %d reports", n-commits)
	}
	if src.Status.Drift == nil || src.Status.Drift.ReportCommit != before.Status.Drift.ReportCommit {
		t.Errorf("drift is %+v, was %+v", src.Status.Drift, before.Status.Drift)
	}

	p.commit(p.tree(map[string]int{"a": 100, "b": 200}))
	p.pass()
	if got := p.cpu("a"); got != "7" {
		t.Errorf("a commit about another object made it %s", got)
	}
	p.commit(p.tree(map[string]int{"a": 300, "b": 200}))
	src = p.pass()
	if got := p.cpu("a"); got != "300" {
		t.Errorf("a commit about the object left it at %s", got)
	}
	if src.Status.Drift != nil || len(p.reports()) != 0 {
		t.Errorf("drift %+v, reports %v", src.Status.Drift, p.reports())
	}
	if got := p.events(reasonOverwritten); len(got) != 1 || !strings.Contains(got[0], "spec.limits.cpu (by kubectl-edit)") {
		t.Errorf("events: %v", got)
	}
}

// testDropped: a field that Git no longer holds goes, also if somebody had a hand
// in it, has put it back, and a new process applies the commit.
func testDropped(t *testing.T, w *world) {
	p := w.place(t, "dropped", nil)
	tree := p.tree(map[string]int{"a": 100, "b": 100})
	p.commit(tree)
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	p.edit("b", `{"spec":{"limits":{"cpu":"5"}}}`)
	p.once()
	p.edit("a", `{"spec":{"limits":{"cpu":100}}}`)
	p.edit("a", `{"spec":{"weight":4}}`)
	p.pass()
	tree["pools.cue"] = strings.ReplaceAll(tree["pools.cue"], "limits: cpu: 100", "")
	p.commit(tree)
	p.restart()
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	for _, name := range []string{"a", "b"} {
		if limits := p.pool(name).Spec.Limits; len(limits) != 0 {
			t.Errorf("%s still has %v", name, limits)
		}
	}
	if got := p.pool("a").Spec.Weight; got == nil || *got != 4 {
		t.Errorf("what Git never held is gone: weight is %v", got)
	}
	if src.Status.Drift != nil || len(p.reports()) != 0 {
		t.Errorf("drift %+v, reports %v", src.Status.Drift, p.reports())
	}
}

// testKinds: removed fields, missing objects, other spellings, things that Git
// doesn't hold, and times that stay.
func testKinds(t *testing.T, w *world) {
	p := w.place(t, "kinds", nil)
	p.commit(p.tree(map[string]int{"a": 100, "b": 100}))
	p.pass()

	p.edit("a", `{"metadata":{"labels":{"x":"y"}},"spec":{"weight":3,"limits":{"cpu":"100000m","memory":"1Gi"}}}`)
	if src := p.pass(); src.Status.Drift != nil {
		t.Errorf("another spelling is drift: %+v", src.Status.Drift)
	}

	p.edit("a", `{"spec":{"limits":{"cpu":null}}}`)
	testkit.Delete(t, p.kube, &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "kinds-b"}})
	testkit.AwaitGone(t, p.kube, 10*time.Second, &karpenter.NodePoolList{}, client.ObjectKey{Name: "kinds-b"})
	src := p.pass()
	c := want(t, src, coppice.ConditionDrifted, metav1.ConditionTrue, reasonDrift)
	if !strings.Contains(c.Message, "NodePool/kinds-a spec.limits.cpu (removed), NodePool/kinds-b is missing") {
		t.Error(c.Message)
	}
	report := p.reports()["drift/demo/kinds/fleet.yaml"]
	if !strings.Contains(report, "missing: true") || !strings.Contains(report, "removed: true") {
		t.Errorf("report:\n%s", report)
	}
	// The same manager writes elsewhere, a second later: not another report.
	commits := p.commits("coppice/drift")
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	p.pass()
	if n := p.commits("coppice/drift"); n != commits+1 {
		t.Errorf("%d commits, want %d", n, commits+1)
	}
	time.Sleep(1100 * time.Millisecond) // managed fields have a clock of seconds
	p.edit("a", `{"metadata":{"labels":{"x":"z"}}}`)
	p.once()
	if n := p.commits("coppice/drift"); n != commits+1 {
		t.Errorf("%d commits after an unrelated edit, want %d", n, commits+1)
	}

	// Git wants the pool again in another form, which brings it back.
	p.commit(p.tree(map[string]int{"a": 101, "b": 101}))
	if src = p.pass(); src.Status.Drift != nil || p.cpu("b") != "101" {
		t.Errorf("drift %+v, b has %s", src.Status.Drift, p.cpu("b"))
	}
	if got := p.events(reasonSettled); len(got) != 1 {
		t.Errorf("events: %v", got)
	}
}

// testCorrect: Git's values are put back, and nobody is fought.
func testCorrect(t *testing.T, w *world) {
	p := w.place(t, "correct", func(s *coppice.NodeSource) { s.Spec.DriftMode = coppice.DriftCorrect })
	p.commit(p.tree(map[string]int{"a": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	src := p.pass()
	if p.cpu("a") != "100" || src.Status.Drift != nil || len(p.reports()) != 0 {
		t.Errorf("a has %s, drift %+v, reports %v", p.cpu("a"), src.Status.Drift, p.reports())
	}
	if got := p.events(reasonCorrected); len(got) != 1 || !strings.Contains(got[0], "by kubectl-edit") {
		t.Errorf("events: %v", got)
	}

	// A second edit right after a correction waits for its turn.
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(src)}
	p.edit("a", `{"spec":{"limits":{"cpu":"6"}}}`)
	p.once()
	p.edit("a", `{"spec":{"limits":{"cpu":"7"}}}`)
	p.clock.Step(time.Second)
	res, err := p.r.Reconcile(quiet(t), req)
	if err != nil || p.cpu("a") != "7" || res.RequeueAfter > interval {
		t.Errorf("a has %s, next pass in %s, %v", p.cpu("a"), res.RequeueAfter, err)
	}
	p.once()
	if p.cpu("a") != "100" {
		t.Errorf("a has %s an interval later", p.cpu("a"))
	}
	testkit.Delete(t, p.kube, p.pool("a"))
	testkit.AwaitGone(t, p.kube, 10*time.Second, &karpenter.NodePoolList{}, client.ObjectKey{Name: "correct-a"})
	p.pass()
	if p.cpu("a") != "100" {
		t.Error("a missing pool isn't put back")
	}
}

// testOff: nobody looks, and what was reported goes.
func testOff(t *testing.T, w *world) {
	p := w.place(t, "off", nil)
	p.commit(p.tree(map[string]int{"a": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	p.pass()
	p.spec(func(s *coppice.NodeSource) { s.Spec.DriftMode = coppice.DriftOff })
	src := p.pass()
	if src.Status.Drift != nil || len(p.reports()) != 0 || p.cpu("a") != "5" {
		t.Errorf("drift %+v, reports %v, a has %s", src.Status.Drift, p.reports(), p.cpu("a"))
	}
	// Without a branch the status alone tells.
	p.spec(func(s *coppice.NodeSource) { s.Spec.DriftMode, s.Spec.WriteBack = coppice.DriftWarn, nil })
	commits := p.commits("coppice/drift")
	src = p.pass()
	if src.Status.Drift == nil || p.commits("coppice/drift") != commits {
		t.Errorf("drift %+v, %d commits", src.Status.Drift, p.commits("coppice/drift")-commits)
	}
}

// testSpacing: edits in a row are one report each interval at most.
func testSpacing(t *testing.T, w *world) {
	p := w.place(t, "spacing", nil)
	p.commit(p.tree(map[string]int{"a": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"1"}}}`)
	src := p.once()
	commits := p.commits("coppice/drift")
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(src)}
	for _, cpu := range []string{"2", "3", "4"} {
		p.edit("a", `{"spec":{"limits":{"cpu":"`+cpu+`"}}}`)
		p.clock.Step(time.Second)
		res, err := p.r.Reconcile(quiet(t), req)
		if err != nil || res.RequeueAfter > pushSpacing {
			t.Errorf("next pass in %s, %v", res.RequeueAfter, err)
		}
	}
	if n := p.commits("coppice/drift"); n != commits {
		t.Errorf("%d reports within %s", n-commits, pushSpacing)
	}
	p.once()
	if report := p.reports()["drift/demo/spacing/fleet.yaml"]; p.commits("coppice/drift") != commits+1 || !strings.Contains(report, `live: "4"`) {
		t.Errorf("%d reports later, the last is\n%s", p.commits("coppice/drift")-commits, report)
	}
}

// testWatch runs the whole controller: with an interval of an hour, it is the
// watch alone that makes it see a change, and a request that makes it fetch.
func testWatch(t *testing.T, w *world) {
	p := w.place(t, "watch", func(s *coppice.NodeSource) { s.Spec.Interval = metav1.Duration{Duration: time.Hour} })
	p.commit(p.tree(map[string]int{"a": 100}))
	mgr, err := ctrl.NewManager(w.env.REST, ctrl.Options{
		Scheme: testkit.Scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Setup(mgr, Options{ClusterName: "demo"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	await := func(what string, ok func(*coppice.NodeSource) bool) {
		t.Helper()
		testkit.AwaitObject(t, p.kube, what, 20*time.Second, &coppice.NodeSourceList{}, client.ObjectKey{Namespace: "watch", Name: "fleet"},
			func(src *coppice.NodeSource) (bool, string) { return src != nil && ok(src), "not yet" })
	}
	await("the first commit", func(s *coppice.NodeSource) bool { return s.Status.LastAppliedRevision != "" })
	start := time.Now()
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	await("drift", func(s *coppice.NodeSource) bool { return s.Status.Drift != nil && s.Status.Drift.ReportCommit != "" })
	t.Logf("drift was reported after %s", time.Since(start).Round(time.Millisecond))
	testkit.Delete(t, p.kube, p.pool("a"))
	await("the missing pool", func(s *coppice.NodeSource) bool {
		return s.Status.Drift != nil && s.Status.Drift.Items[0].Field == ""
	})
	revision := p.commit(p.tree(map[string]int{"a": 300}))
	p.spec(func(s *coppice.NodeSource) { s.Annotations = map[string]string{coppice.RequestedAtAnnotation: "now"} })
	await("the second commit", func(s *coppice.NodeSource) bool {
		return s.Status.LastAppliedRevision == revision && s.Status.LastHandledReconcileAt == "now"
	})
	if got := p.cpu("a"); got != "300" {
		t.Errorf("a has %s", got)
	}
	conform(t, p.source())
}
