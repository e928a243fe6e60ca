package source

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// TestSource runs every case against one real API server and one Git server.
func TestSource(t *testing.T) {
	env := testkit.Sandbox(t)
	w := &world{env: env, kube: testkit.Client(t, env.REST), git: testkit.Git(t)}
	testkit.InstallCRDs(t, w.kube)
	ctrl.SetLogger(logr.Discard())
	var err error
	if w.evaluate, err = inProcess(); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(*testing.T, *world){
		"loop":          testLoop,
		"unrelated":     testUnrelated,
		"dropped":       testDropped,
		"kinds":         testKinds,
		"correct":       testCorrect,
		"off":           testOff,
		"spacing":       testSpacing,
		"watch":         testWatch,
		"prune":         testPrune,
		"contested":     testContested,
		"refused":       testRefusedByServer,
		"adopt":         testAdopt,
		"access":        testAccess,
		"hostile":       testHostile,
		"doubtful":      testDoubtful,
		"outage":        testOutage,
		"reportfailure": testReportFailure,
		"suspend":       testSuspend,
		"crash":         testCrash,
		"refs":          testRefs,
		"rewritten":     testRewritten,
		"ssh":           testSSH,
		"verify":        testVerify,
		"faults":        testFaults,
		"artifact":      testArtifact,
		"webhook":       testWebhook,
		"app":           testApp,
		"certificates":  testCertificates,
		"confirm":       testConfirm,
		"reverted":      testReverted,
		"twice":         testTwice,
		"stalled":       testStalledRequest,
		"released":      testReleased,
		"conflict":      testConflict,
		"modes":         testModes,
		"depends":       testDepends,
		"identity":      testIdentity,
		"wait":          testWait,
		"signed":        testSigned,
		"proposed":      testProposed,
		"notify":        testNotify,
		"redacted":      testRedacted,
		"secrets":       testSecrets,
	} {
		t.Run(name, func(t *testing.T) { run(t, w) })
	}
}

// inventory lists the ids of what a source has.
func inventory(src *coppice.NodeSource) []string {
	var out []string
	if src.Status.Inventory != nil {
		for _, e := range src.Status.Inventory.Entries {
			out = append(out, e.ID)
		}
	}
	return out
}

// testLoop goes once around: apply, change, drift, undo, a bad commit, recovery.
func testLoop(t *testing.T, w *world) {
	p := w.place(t, "loop", nil)
	first := p.commit(p.tree(map[string]int{"a": 100}))
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if got := src.Status.LastAppliedRevision; got != first || src.Status.LastAttemptedRevision != first {
		t.Errorf("applied %s, attempted %s, want %s", got, src.Status.LastAttemptedRevision, first)
	}
	if got := inventory(src); len(got) != 2 {
		t.Errorf("the inventory is %v", got)
	}
	if p.cpu("a") != "100" {
		t.Errorf("the pool is %+v", p.pool("a").Spec)
	}
	if n := p.commits("coppice/drift"); n != 0 {
		t.Errorf("%d reports without drift", n)
	}

	second := p.commit(p.tree(map[string]int{"a": 200}))
	if src = p.pass(); src.Status.LastAppliedRevision != second {
		t.Errorf("applied %s, want %s", src.Status.LastAppliedRevision, second)
	}

	// What controllers write isn't drift.
	p.edit("a", `{"metadata":{"annotations":{"karpenter.sh/nodepool-hash":"1"}}}`)
	p.once()
	if src = p.pass(); src.Status.Drift != nil {
		t.Errorf("our own annotation is drift: %+v", src.Status.Drift)
	}

	p.edit("a", `{"spec":{"limits":{"cpu":"300"}}}`)
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	want(t, src, coppice.ConditionDrifted, metav1.ConditionTrue, reasonDrift)
	item := coppice.DriftItem{Object: "NodePool/loop-a", Field: "spec.limits.cpu", Git: "200", Live: `"300"`, Manager: "kubectl-edit"}
	if diff := cmp.Diff(&coppice.DriftSummary{Objects: 1, Fields: 1, Items: []coppice.DriftItem{item}, ReportCommit: src.Status.LastPushCommit}, src.Status.Drift); diff != "" {
		t.Error(diff)
	}
	report, ok := p.reports()["drift/demo/loop/fleet.yaml"]
	if !ok || !strings.Contains(report, "live: \"300\"") || !strings.Contains(report, "manager: kubectl-edit") || !strings.Contains(report, "when: ") {
		t.Errorf("reports: %v", p.reports())
	}

	p.edit("a", `{"spec":{"limits":{"cpu":200}}}`)
	src = p.pass()
	want(t, src, coppice.ConditionDrifted, "", "")
	if n := len(p.reports()); n != 0 || src.Status.Drift != nil || p.commits("coppice/drift") != 2 {
		t.Errorf("%d reports and %d commits after the change was undone", n, p.commits("coppice/drift"))
	}

	bad := p.tree(map[string]int{"a": 400})
	bad["pools.cue"] = strings.Replace(bad["pools.cue"], "\tlimits:", "\twieght: 3\n\tlimits:", 1)
	bad["pools.cue"] = strings.Replace(bad["pools.cue"], `operator: "In", values: ["amd64"]`, `operator: "In", values: []`, 1)
	third := p.commit(bad)
	src = p.pass()
	ready := want(t, src, conditionReady, metav1.ConditionFalse, reasonInvalid)
	want(t, src, conditionStalled, metav1.ConditionTrue, reasonInvalid)
	t.Log(ready.Message)
	for _, say := range []string{"pools.cue:8:2: ", "wieght", "pools.cue:12:", "2 findings"} {
		if !strings.Contains(ready.Message, say) {
			t.Errorf("%q doesn't say %q", ready.Message, say)
		}
	}
	if src.Status.LastAppliedRevision != second || src.Status.LastAttemptedRevision != third {
		t.Errorf("applied %s, attempted %s", src.Status.LastAppliedRevision, src.Status.LastAttemptedRevision)
	}
	if p.cpu("a") != "200" {
		t.Error("a refused commit changed what is live")
	}
	if got := strings.Join(p.events(reasonInvalid), "\n"); !strings.Contains(got, "wieght") || !strings.Contains(got, "pools.cue:12:") {
		t.Errorf("events: %s", got)
	}
	// Drift is found while Git is ahead, also by a new process.
	p.edit("a", `{"spec":{"weight":5,"limits":{"cpu":"201"}}}`)
	p.restart()
	if src = p.pass(); src.Status.Drift == nil || src.Status.Drift.Fields != 1 {
		t.Errorf("drift under a refused commit: %+v", src.Status.Drift)
	}
	p.edit("a", `{"spec":{"limits":{"cpu":200}}}`)

	fourth := p.commit(p.tree(map[string]int{"a": 500}))
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	want(t, src, conditionStalled, "", "")
	if src.Status.LastAppliedRevision != fourth || p.cpu("a") != "500" {
		t.Errorf("the next good commit is not applied: %s", src.Status.LastAppliedRevision)
	}
	var outcomes []string
	for _, h := range src.Status.History {
		outcomes = append(outcomes, string(h.Outcome)+" "+h.Revision)
	}
	if diff := cmp.Diff([]string{"Applied " + fourth, "Refused " + third, "Applied " + second, "Applied " + first}, outcomes); diff != "" {
		t.Error(diff)
	}
	if len(p.reports()) != 0 {
		t.Errorf("reports: %v", p.reports())
	}
}
