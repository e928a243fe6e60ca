package source

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// testPrune: what a commit no longer declares goes, up to a limit.
func testPrune(t *testing.T, w *world) {
	p := w.place(t, "prune", func(s *coppice.NodeSource) { s.Spec.MaxDeletes = ptr.To[int32](1) })
	p.commit(p.tree(map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}))
	p.pass()
	p.commit(p.tree(map[string]int{"a": 1, "b": 1, "c": 1}))
	src := p.pass()
	if p.pool("d") != nil || len(inventory(src)) != 4 {
		t.Errorf("d is still there, inventory %v", inventory(src))
	}
	if got := p.events(reasonPruned); len(got) != 1 || !strings.Contains(got[0], "NodePool/prune-d") {
		t.Errorf("events: %v", got)
	}

	// Too many at once: nothing of the commit is applied, its changes neither.
	applied := src.Status.LastAppliedRevision
	p.commit(p.tree(map[string]int{"a": 2}))
	src = p.pass()
	c := want(t, src, conditionStalled, metav1.ConditionTrue, reasonPruneGuard)
	if !strings.Contains(c.Message, "2 objects (NodePool/prune-b, NodePool/prune-c)") || !strings.Contains(c.Message, "spec.maxDeletes is 1") {
		t.Error(c.Message)
	}
	if src.Status.LastAppliedRevision != applied || p.cpu("a") != "1" || p.pool("b") == nil {
		t.Errorf("applied %s, a has %s, b is %v", src.Status.LastAppliedRevision, p.cpu("a"), p.pool("b"))
	}
	p.spec(func(s *coppice.NodeSource) { s.Spec.MaxDeletes = ptr.To[int32](2) })
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "2" || p.pool("b") != nil || p.pool("c") != nil {
		t.Errorf("a has %s", p.cpu("a"))
	}

	// A tree that declares nothing is taken for an accident.
	p.commit(map[string]string{"pools.cue": "package cluster\n", "classes.cue": ""})
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionFalse, reasonPruneGuard)
	if p.pool("a") == nil {
		t.Error("an empty tree deleted everything")
	}

	// Without pruning, what leaves the source stays in the cluster.
	p.spec(func(s *coppice.NodeSource) { s.Spec.Prune = ptr.To(false) })
	p.commit(p.tree(map[string]int{"z": 1}))
	src = p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.pool("a") == nil || len(inventory(src)) != 2 {
		t.Errorf("inventory %v", inventory(src))
	}
}

// testContested: one object has one source.
func testContested(t *testing.T, w *world) {
	p := w.place(t, "contested", nil)
	p.commit(p.tree(map[string]int{"a": 1}))
	p.pass()
	second := &coppice.NodeSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "contested", Name: "second"},
		Spec:       *p.source().Spec.DeepCopy(),
	}
	p.create(second)
	t.Cleanup(func() { testkit.Delete(t, p.kube, second) })
	_, err := p.r.Reconcile(quiet(t), reqOf(second))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.kube.Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil {
		t.Fatal(err)
	}
	conform(t, second)
	c := want(t, second, conditionReady, metav1.ConditionFalse, reasonContested)
	if !strings.Contains(c.Message, "NodePool/contested-a belongs to NodeSource contested/fleet") {
		t.Error(c.Message)
	}
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
}

// testRefusedByServer: what only the API server knows is a finding at the
// author's line all the same, and nothing of the commit is applied.
func testRefusedByServer(t *testing.T, w *world) {
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-thirteen"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"karpenter.sh"}, APIVersions: []string{"v1"}, Resources: []string{"nodepools"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: `string(object.spec.limits.cpu) != "13"`, Message: "thirteen is unlucky"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-thirteen"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-thirteen", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	p := w.place(t, "refused", nil)
	p.create(policy)
	p.create(binding)
	t.Cleanup(func() { testkit.Delete(t, p.kube, policy); testkit.Delete(t, p.kube, binding) })
	// The API server takes a moment to obey a new policy.
	probe := &karpenter.NodePool{}
	for deadline := time.Now().Add(20 * time.Second); ; {
		probe = p.probe("13")
		err := p.kube.Create(t.Context(), probe, client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "unlucky") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the policy isn't in force: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}

	p.commit(p.tree(map[string]int{"a": 1, "b": 13}))
	src := p.pass()
	c := want(t, src, conditionReady, metav1.ConditionFalse, reasonInvalid)
	if !strings.Contains(c.Message, "unlucky") || !strings.Contains(c.Message, "pools.cue:") || !strings.Contains(c.Message, "NodePool/refused-b") {
		t.Error(c.Message)
	}
	if p.pool("a") != nil {
		t.Error("the other object was applied")
	}
	// It goes through without a new commit once the policy is gone.
	testkit.Delete(t, p.kube, binding)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if src = p.once(); src.Status.LastAppliedRevision != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the source doesn't recover: %v", src.Status.Conditions)
		}
		time.Sleep(50 * time.Millisecond)
	}
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
}

func (p *place) probe(cpu string) *karpenter.NodePool {
	pool := &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	pool.Spec.Limits = karpenter.Limits{"cpu": quantity(cpu)}
	pool.Spec.Template.Spec.NodeClassRef = &karpenter.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "x"}
	pool.Spec.Template.Spec.Requirements = []karpenter.NodeSelectorRequirementWithMinValues{{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"amd64"}}}
	return pool
}

// testAdopt: an object that was there before becomes the source's, once, and one
// that is being deleted is waited for.
func testAdopt(t *testing.T, w *world) {
	p := w.place(t, "adopt", nil)
	pool := p.probe("9")
	pool.Name = "adopt-a"
	pool.Finalizers = []string{"example.com/hold"}
	p.create(pool)
	p.commit(p.tree(map[string]int{"a": 1}))
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "1" {
		t.Errorf("a has %s", p.cpu("a"))
	}

	testkit.Delete(t, p.kube, p.pool("a"))
	p.commit(p.tree(map[string]int{"a": 2}))
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionFalse, reasonTerminating)
	want(t, src, conditionReconciling, metav1.ConditionTrue, reasonTerminating)
	p.edit("a", `{"metadata":{"finalizers":null}}`)
	testkit.AwaitGone(t, p.kube, 10*time.Second, &karpenter.NodePoolList{}, client.ObjectKey{Name: "adopt-a"})
	want(t, p.pass(), conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("a") != "2" {
		t.Errorf("a has %s", p.cpu("a"))
	}
}

// testStalledRequest: a source that waits for a person looks again once for each
// request, and not at each pass.
func testStalledRequest(t *testing.T, w *world) {
	p := w.place(t, "stalled", func(s *coppice.NodeSource) { s.Spec.MaxDeletes = ptr.To[int32](0) })
	evaluations := 0
	p.opts.Evaluate = func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		evaluations++
		return w.evaluate(ctx, tree, cluster)
	}
	p.restart()
	p.commit(p.tree(map[string]int{"a": 1, "b": 1}))
	p.pass()
	p.commit(p.tree(map[string]int{"a": 1}))
	want(t, p.pass(), conditionStalled, metav1.ConditionTrue, reasonPruneGuard)
	p.spec(func(s *coppice.NodeSource) { s.Annotations = map[string]string{coppice.RequestedAtAnnotation: "1"} })
	before := evaluations
	for range 4 {
		p.once()
	}
	if n := evaluations - before; n != 1 {
		t.Errorf("%d evaluations for one request", n)
	}
}

// testReverted: what was there before and was never applied stays when its author
// thinks better of it.
func testReverted(t *testing.T, w *world) {
	p := w.place(t, "reverted", nil)
	p.commit(p.tree(map[string]int{"a": 1}))
	p.pass()
	pool := p.probe("9")
	pool.Name = "reverted-b"
	p.create(pool)
	p.commit(p.tree(map[string]int{"a": 1, "b": 1}))
	failing := interceptor.NewClient(p.kube, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			var all client.ApplyOptions
			all.ApplyOptions(opts)
			if len(all.DryRun) == 0 {
				return errors.New("no")
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	r, err := newReconciler(failing, failing, Options{Clock: p.clock, Evaluate: w.evaluate})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(quiet(t), reconcileRequest(p)); err != nil {
		t.Fatal(err)
	}
	if got := inventory(p.source()); len(got) != 3 {
		t.Fatalf("the intent isn't written down: %v", got)
	}
	p.claim("x", "b")
	p.commit(p.tree(map[string]int{"a": 1}))
	p.restart()
	src := p.pass()
	want(t, src, conditionReady, metav1.ConditionTrue, reasonApplied)
	if p.cpu("b") != "9" || len(inventory(src)) != 2 {
		t.Errorf("b has %q, inventory %v", p.cpu("b"), inventory(src))
	}
}

// testTwice: of two sources that pass the guard at the same time, one alone gets an
// object, and the other leaves it alone, also when it thinks that it has it.
func testTwice(t *testing.T, w *world) {
	p := w.place(t, "twice", nil)
	p.commit(p.tree(map[string]int{"a": 1}))
	p.pass()
	second := &coppice.NodeSource{ObjectMeta: metav1.ObjectMeta{Namespace: "twice", Name: "second"}, Spec: *p.source().Spec.DeepCopy()}
	second.Spec.WriteBack, second.Spec.DriftMode = nil, coppice.DriftCorrect
	p.create(second)
	t.Cleanup(func() { testkit.Delete(t, p.kube, second) })
	blind := interceptor.NewClient(p.kube, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*coppice.NodeSourceList); ok {
				return nil // a cache that hasn't heard of the other one
			}
			return c.List(ctx, list, opts...)
		},
	})
	run := func(c client.Client) {
		t.Helper()
		r, err := newReconciler(c, p.kube, Options{Clock: p.clock, Evaluate: w.evaluate})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(quiet(t), reqOf(second)); err != nil {
			t.Fatal(err)
		}
		if err := p.kube.Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil {
			t.Fatal(err)
		}
	}
	run(blind)
	want(t, second, conditionReady, metav1.ConditionFalse, reasonContested)
	if got := inventory(second); len(got) != 0 {
		t.Errorf("the one that lost has %v", got)
	}

	second.Status.Inventory, second.Status.LastAppliedRevision = p.source().Status.Inventory, p.source().Status.LastAppliedRevision
	if err := p.kube.Status().Update(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	p.edit("a", `{"spec":{"limits":{"cpu":"5"}}}`)
	run(p.kube)
	if p.cpu("a") != "5" || second.Status.Drift != nil {
		t.Errorf("the other source's object is corrected to %s, drift %+v", p.cpu("a"), second.Status.Drift)
	}
}
