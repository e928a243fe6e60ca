package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// claim makes a NodeClaim of a pool, as the engine would.
func (p *place) claim(name, pool string) *karpenter.NodeClaim {
	p.t.Helper()
	c := &karpenter.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: p.name + "-" + name, Labels: map[string]string{karpenter.LabelNodePool: p.name + "-" + pool}},
		Spec: karpenter.NodeClaimSpec{
			NodeClassRef: &karpenter.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: p.name},
			Requirements: []karpenter.NodeSelectorRequirementWithMinValues{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"amd64"}}},
		},
	}
	p.create(c)
	// The test's own context is over by then.
	p.t.Cleanup(func() { _ = p.kube.Delete(context.Background(), c) })
	return c
}

// condition patches a condition into a status, as the engine would.
func (p *place) condition(o client.Object, kind string, status metav1.ConditionStatus, reason string) {
	p.t.Helper()
	if err := p.kube.Get(p.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		p.t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":%q,"message":"","observedGeneration":%d,"lastTransitionTime":"2026-11-30T10:00:00Z"}]}}`,
		kind, status, reason, o.GetGeneration())
	if err := p.kube.Status().Patch(p.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner("karpenter")); err != nil {
		p.t.Fatal(err)
	}
}

// testConfirm: a pool with nodes goes only after Git has confirmed it.
func testConfirm(t *testing.T, w *world) {
	p := w.place(t, "confirm", nil)
	p.commit(p.tree(map[string]int{"a": 1, "b": 1}))
	p.pass()
	p.claim("x", "b")
	p.claim("y", "a")

	p.commit(p.tree(map[string]int{"a": 2}))
	src := p.pass()
	c := want(t, src, conditionStalled, metav1.ConditionTrue, reasonPruneGuard)
	for _, say := range []string{"would delete NodePool/confirm-b with 1 node of ", `to confirm, add deletes: ["NodePool/confirm-b"] to coppice.cue`} {
		if !strings.Contains(c.Message, say) {
			t.Errorf("%q doesn't say %q", c.Message, say)
		}
	}
	if p.pool("b") == nil || p.cpu("a") != "1" {
		t.Error("a part of the commit is applied")
	}

	p.commit(map[string]string{"coppice.cue": "package coppice\n\ndeletes: [\"NodePool/\" + \"confirm-b\"]\n"})
	c = want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonPruneGuard)
	if !strings.Contains(c.Message, "coppice.cue:3: deletes must hold names in quotes") {
		t.Error(c.Message)
	}
	p.commit(map[string]string{"coppice.cue": "package coppice\n\n// The batch jobs have moved.\ndeletes: [\"NodePool/confirm-b\"]\n"})
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.pool("b") != nil || p.cpu("a") != "2" {
		t.Errorf("b is %v, a has %s", p.pool("b"), p.cpu("a"))
	}

	// A confirmation that has done its work must go before it can do more.
	p.commit(p.tree(map[string]int{"a": 2, "b": 1}))
	c = want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonPruneGuard)
	if !strings.Contains(c.Message, "declares NodePool/confirm-b and lists NodePool/confirm-b under deletes in coppice.cue; remove that line") {
		t.Error(c.Message)
	}
	p.commit(p.tree(map[string]int{"a": 2}))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)

	// Within the share that a source allows, nothing needs a confirmation.
	p.spec(func(s *coppice.NodeSource) { s.Spec.MaxDeletedNodes = "50%" })
	p.commit(p.tree(map[string]int{"c": 1}))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.pool("a") != nil {
		t.Error("a is still there")
	}
}

// testConflict: who wins a field that somebody else has written.
func testConflict(t *testing.T, w *world) {
	p := w.place(t, "conflict", nil)
	expires := metav1.NewTime(p.clock.Now().Add(time.Hour).Truncate(time.Second))
	p.spec(func(s *coppice.NodeSource) {
		s.Spec.Conflicts = []coppice.ConflictRule{
			{Paths: []string{"/spec/limits"}, Managers: []string{"kubectl-*"}, Name: "conflict-a", Policy: coppice.ConflictYield, Expires: &expires},
			{Paths: []string{"/spec/limits/cpu"}, Kind: "NodePool", Name: "conflict-b", Policy: coppice.ConflictFail},
		}
	})
	p.commit(p.tree(map[string]int{"a": 100, "b": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"7"}}}`)
	if src := p.pass(); src.Status.Drift != nil {
		t.Errorf("a yielded field is drift: %+v", src.Status.Drift)
	}
	p.commit(p.tree(map[string]int{"a": 200, "b": 100}))
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "7" || src.Status.Drift != nil {
		t.Errorf("a has %s, drift %+v", p.cpu("a"), src.Status.Drift)
	}

	p.edit("b", `{"spec":{"limits":{"cpu":"9"}}}`)
	if src = p.pass(); src.Status.Drift == nil || src.Status.Drift.Fields != 1 {
		t.Errorf("a contested field is no drift: %+v", src.Status.Drift)
	}
	p.commit(p.tree(map[string]int{"a": 300, "b": 300}))
	src = p.pass()
	c := want(t, src, conditionStalled, metav1.ConditionTrue, reasonConflict)
	if !strings.Contains(c.Message, "NodePool/conflict-b spec.limits.cpu (by kubectl-edit)") {
		t.Error(c.Message)
	}
	// Correction doesn't take it either.
	p.spec(func(s *coppice.NodeSource) { s.Spec.DriftMode = coppice.DriftCorrect })
	p.once()
	if p.cpu("b") != "9" {
		t.Errorf("b has %s", p.cpu("b"))
	}
	p.spec(func(s *coppice.NodeSource) {
		s.Spec.DriftMode, s.Spec.Conflicts = coppice.DriftWarn, s.Spec.Conflicts[:1]
	})
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("b") != "300" || p.cpu("a") != "7" {
		t.Errorf("b has %s, a has %s", p.cpu("b"), p.cpu("a"))
	}

	// A rule that has expired protects nothing any more.
	p.clock.Step(time.Hour)
	src = p.pass()
	c = want(t, src, coppice.ConditionDrifted, metav1.ConditionTrue, reasonDrift)
	if !strings.Contains(c.Message, "NodePool/conflict-a spec.limits.cpu (by kubectl-edit)") {
		t.Error(c.Message)
	}
}

// testReleased: a rule protects a field that Git no longer holds, too.
func testReleased(t *testing.T, w *world) {
	p := w.place(t, "released", func(s *coppice.NodeSource) {
		s.Spec.Conflicts = []coppice.ConflictRule{
			{Paths: []string{"/spec/limits"}, Name: "released-a", Policy: coppice.ConflictYield},
			{Paths: []string{"/spec/limits"}, Name: "released-b", Policy: coppice.ConflictFail},
		}
	})
	p.commit(p.tree(map[string]int{"a": 100}))
	p.pass()
	p.edit("a", `{"spec":{"limits":{"cpu":"7"}}}`)
	p.pass()
	without := func(pools map[string]int, n string) map[string]string {
		tree := p.tree(pools)
		tree["pools.cue"] = strings.ReplaceAll(tree["pools.cue"], "limits: cpu: "+n+"\n", "")
		return tree
	}
	p.commit(without(map[string]int{"a": 100}, "100"))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "7" {
		t.Errorf("the yielded limit is %s", p.cpu("a"))
	}
	p.commit(without(map[string]int{"a": 100, "b": 200}, "100"))
	p.pass()
	p.edit("b", `{"spec":{"limits":{"cpu":"9"}}}`)
	p.pass()
	tree := p.tree(map[string]int{"a": 100, "b": 100})
	tree["pools.cue"] = strings.ReplaceAll(tree["pools.cue"], "limits: cpu: 100\n", "")
	p.commit(tree)
	c := want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonConflict)
	if !strings.Contains(c.Message, "NodePool/released-b spec.limits.cpu (by kubectl-edit)") || p.cpu("b") != "9" {
		t.Errorf("b has %s: %s", p.cpu("b"), c.Message)
	}
}

// testModes: an object's own drift mode outranks its source's.
func testModes(t *testing.T, w *world) {
	p := w.place(t, "modes", nil)
	tree := p.tree(map[string]int{"a": 100, "b": 100, "c": 100})
	for name, mode := range map[string]string{"a": "correct", "b": "off"} {
		at := fmt.Sprintf("nodePools: \"modes-%s\": spec: {", name)
		tree["pools.cue"] = strings.Replace(tree["pools.cue"], at, fmt.Sprintf("nodePools: \"modes-%s\": metadata: annotations: \"coppice.dev/drift\": %q\n%s", name, mode, at), 1)
	}
	p.commit(tree)
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	for _, name := range []string{"a", "b", "c"} {
		p.edit(name, `{"spec":{"limits":{"cpu":"5"}}}`)
	}
	src := p.pass()
	if got := []string{p.cpu("a"), p.cpu("b"), p.cpu("c")}; strings.Join(got, " ") != "100 5 5" {
		t.Errorf("the limits are %v", got)
	}
	c := want(t, src, coppice.ConditionDrifted, metav1.ConditionTrue, reasonDrift)
	if !strings.Contains(c.Message, "1 field of 1 object") || !strings.Contains(c.Message, "modes-c") {
		t.Error(c.Message)
	}
	if got := p.events(reasonCorrected); len(got) != 1 || !strings.Contains(got[0], "NodePool/modes-a") || strings.Contains(got[0], "modes-c") {
		t.Errorf("events: %v", got)
	}
}

// testDepends: a source waits for those that it names.
func testDepends(t *testing.T, w *world) {
	p := w.place(t, "depends", func(s *coppice.NodeSource) {
		s.Spec.DependsOn = []coppice.SourceReference{{Name: "base"}}
	})
	p.commit(p.tree(map[string]int{"a": 1}))
	c := want(t, p.pass(), conditionReconciling, metav1.ConditionTrue, reasonDependency)
	if !strings.Contains(c.Message, "there is no NodeSource depends/base") {
		t.Error(c.Message)
	}
	base := &coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Namespace: "depends", Name: "base"}, Spec: *p.source().Spec.DeepCopy()}
	base.Spec.DependsOn, base.Spec.Suspend = nil, true
	p.create(base)
	t.Cleanup(func() { testkit.Delete(t, p.kube, base) })
	if c = want(t, p.pass(), conditionReconciling, metav1.ConditionTrue, reasonDependency); !strings.Contains(c.Message, "depends/base, which spec.dependsOn names, is not ready") {
		t.Error(c.Message)
	}
	if p.pool("a") != nil {
		t.Error("the source didn't wait")
	}
	base.Status.ObservedGeneration = base.Generation
	base.Status.Conditions = []metav1.Condition{{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonApplied, Message: "x", LastTransitionTime: metav1.Now()}}
	if err := p.kube.Status().Update(t.Context(), base); err != nil {
		t.Fatal(err)
	}
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
}

// testIdentity: a source acts with the rights of its ServiceAccount.
func testIdentity(t *testing.T, w *world) {
	p := w.place(t, "identity", func(s *coppice.NodeSource) { s.Spec.ServiceAccountName = "applier" })
	p.opts.As = func(namespace, name string) (client.Client, error) {
		cfg := rest.CopyConfig(w.env.REST)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name}
		return client.New(cfg, client.Options{Scheme: p.kube.Scheme()})
	}
	p.restart()
	p.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "identity", Name: "applier"}})
	p.commit(p.tree(map[string]int{"a": 1}))
	for range patience {
		p.once()
	}
	c := want(t, p.source(), conditionReady, metav1.ConditionFalse, reasonApply)
	if !strings.Contains(c.Message, "system:serviceaccount:identity:applier") || p.pool("a") != nil {
		t.Error(c.Message)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "identity"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"karpenter.sh", "karpenter.k8s.aws"}, Resources: []string{"nodepools", "ec2nodeclasses"},
		Verbs: []string{"get", "list", "create", "patch", "delete"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "identity"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "identity"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "identity", Name: "applier"}},
	}
	p.create(role)
	p.create(binding)
	t.Cleanup(func() { testkit.Delete(t, p.kube, role); testkit.Delete(t, p.kube, binding) })
	for deadline := time.Now().Add(20 * time.Second); p.once().Status.LastAppliedRevision == "" && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // the authorizer takes a moment
	}
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
}

// testWait: a source that waits is ready once its nodes are as declared; nodes that
// aren't, and objects that nobody declares, are told apart from config drift.
func testWait(t *testing.T, w *world) {
	p := w.place(t, "wait", func(s *coppice.NodeSource) { s.Spec.Wait = true })
	first := p.commit(p.tree(map[string]int{"a": 1}))
	src := p.pass()
	c := want(t, src, conditionReconciling, metav1.ConditionTrue, reasonRollout)
	want(t, src, conditionReady, metav1.ConditionFalse, reasonRollout)
	if !strings.Contains(c.Message, "NodePool/wait-a has not been looked at") || src.Status.LastAppliedRevision != first {
		t.Error(c.Message, src.Status.LastAppliedRevision)
	}
	p.condition(p.pool("a"), "Ready", metav1.ConditionTrue, "Ready")
	p.condition(p.class(), "Ready", metav1.ConditionTrue, "Ready")
	claim := p.claim("x", "a")
	p.condition(claim, karpenter.ConditionDrifted, metav1.ConditionTrue, "AMIDrift")
	src = p.pass()
	if c = want(t, src, conditionReady, metav1.ConditionFalse, reasonRollout); !strings.Contains(c.Message, "NodePool/wait-a has 1 of 1 node to replace") {
		t.Error(c.Message)
	}
	if f := src.Status.Fleet; f == nil || f.Drifted != 1 || len(f.Items) != 1 || f.Items[0] != (coppice.FleetItem{Pool: "wait-a", Reason: "AMIDrift", Nodes: 1}) {
		t.Errorf("fleet: %+v", f)
	}
	if src.Status.Drift != nil || len(p.reports()) != 0 {
		t.Errorf("fleet drift is reported as config drift: %+v %v", src.Status.Drift, p.reports())
	}
	p.condition(claim, karpenter.ConditionDrifted, metav1.ConditionFalse, "AsDeclared")
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if src.Status.Fleet != nil || len(src.Status.History) != 1 || src.Status.History[0].Outcome != coppice.OutcomeApplied {
		t.Errorf("fleet %+v, history %+v", src.Status.Fleet, src.Status.History)
	}

	// A newer image is no rollout of the commit, whoever looks.
	p.condition(claim, karpenter.ConditionDrifted, metav1.ConditionTrue, "AMIDrift")
	p.restart()
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if src.Status.Fleet == nil {
		t.Error("nodes that drift aren't told of")
	}
	p.condition(claim, karpenter.ConditionDrifted, metav1.ConditionFalse, "AsDeclared")
	p.pass()

	// The oldest source tells, so those that other cases left go.
	var others coppice.NodeSourceList
	if err := p.kube.List(t.Context(), &others); err != nil {
		t.Fatal(err)
	}
	for i := range others.Items {
		if o := &others.Items[i]; o.Namespace != "wait" {
			testkit.Delete(t, p.kube, o)
		}
	}
	stray := p.probe("1")
	stray.Name = "wait-stray"
	p.create(stray)
	src = p.pass()
	if o := src.Status.Orphans; o == nil || !slices.Contains(o.Items, "NodePool/wait-stray") {
		t.Errorf("orphans: %+v", o)
	}
	if got := p.events(reasonOrphans); len(got) != 1 || !strings.Contains(got[0], "NodePool/wait-stray") {
		t.Errorf("events: %v", got)
	}
	testkit.Delete(t, p.kube, stray)
	if src = p.pass(); src.Status.Orphans != nil && slices.Contains(src.Status.Orphans.Items, "NodePool/wait-stray") {
		t.Errorf("orphans: %+v", src.Status.Orphans)
	}
}
