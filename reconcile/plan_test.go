package reconcile_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/catalogue"
	"github.com/coppice-dev/coppice/internal/cli"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// TestMain lets this program be the child that trees are evaluated in, and the controller
// with a clock that tests turn.
func TestMain(m *testing.M) {
	if code, ok := isolate.Serve(os.Args[1:], os.Stdin, os.Stdout); ok {
		os.Exit(code)
	}
	if path := os.Getenv(turnedClock); path != "" {
		os.Exit(cli.Main(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Clock: newTurned(path)}))
	}
	os.Exit(m.Run())
}

// planned has a pool whose nodes are replaced two at a time, one with a node that may
// not be disrupted, and one that the change leaves alone.
const planned = nodeClass + `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s, budgets: [{nodes: "2"}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.xlarge]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: guarded}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s, budgets: [{nodes: "100%"}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      taints: [{key: pool, value: guarded, effect: NoSchedule}]
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: steady}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      taints: [{key: pool, value: steady, effect: NoSchedule}]
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

// onPool makes pods run on the nodes of a tainted pool.
func onPool(name string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Value: name, Effect: corev1.TaintEffectNoSchedule}}
		p.Spec.NodeSelector = map[string]string{karpenter.LabelNodePool: name}
	}
}

// tree writes manifests as a tree of CUE, which is JSON with a package around it.
func tree(t *testing.T, manifest string) string {
	t.Helper()
	dir := t.TempDir()
	objects := map[string]map[string]any{"nodePools": {}, "nodeClasses": {}}
	for _, doc := range strings.Split(manifest, "---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		field := map[any]string{"NodePool": "nodePools", "EC2NodeClass": "nodeClasses"}[o["kind"]]
		objects[field][o["metadata"].(map[string]any)["name"].(string)] = o
	}
	text, err := json.MarshalIndent(objects, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"cue.mod/module.cue": "module: \"example.com/fleet@v0\"\nlanguage: version: \"v0.17.0\"\n",
		"nodes.cue":          "package fleet\n\n" + strings.TrimSuffix(strings.TrimPrefix(string(text), "{"), "}"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// apply applies a tree under Git's field manager, as a NodeSource does.
func (l *loop) apply(dir string) {
	l.t.Helper()
	bundle, findings := render.Render(os.DirFS(dir), "")
	if findings.HasErrors() {
		l.t.Fatal(findings)
	}
	a := kube.NewApplier(l.kube)
	for _, o := range bundle.Objects {
		if _, err := a.Apply(l.t.Context(), kube.Object(o.GVK, o.Value)); err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestPlanForetells: what a plan says of nodes, launches and cost is what happens once
// the change is applied.
func TestPlanForetells(t *testing.T) {
	l := prepare(t, nodeClass[:strings.LastIndex(nodeClass, "---")], "--boot-delay", "500ms")
	before := tree(t, planned)
	l.apply(before)
	l.run(reconcile.Options{})
	l.deploy("web", 8, "1")
	l.deploy("bound", 1, "1", onPool("guarded"), func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
	})
	l.deploy("free", 1, "1", onPool("guarded"))
	l.deploy("calm", 1, "1", onPool("steady"))
	for app, n := range map[string]int{"web": 8, "bound": 1, "free": 1, "calm": 1} {
		l.running(app, n)
	}
	l.settled()

	// Plans of pull requests take their picture with the controller's own rights.
	if _, err := snapshot.Take(t.Context(), testkit.Client(t, l.account), time.Now()); err != nil {
		t.Errorf("an installed controller can't take a picture of the cluster: %v", err)
	}

	changed := strings.Replace(planned, "[m5.xlarge]", "[m6a.xlarge, m6a.2xlarge]", 1)
	changed = strings.Replace(changed, "      taints: [{key: pool, value: guarded", "      expireAfter: 700h\n      taints: [{key: pool, value: guarded", 1)
	after := tree(t, changed)
	file := filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(file, []byte(command(t, cli.ExitOK, "snapshot", "--kubeconfig", l.env.Kubeconfig)), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := command(t, cli.ExitOK, "plan", before, "--snapshot", file); !strings.Contains(text, "Nothing changes: 4 objects are as declared") || !strings.Contains(text, fmt.Sprintf("Nodes: all %d stay.", len(l.machines()))) {
		t.Errorf("what is applied changes something:\n%s", text)
	}
	text := command(t, cli.ExitOK, "plan", after, "--snapshot", file)
	t.Logf("\n%s", text)
	var foretold, live plan.Plan
	if err := json.Unmarshal([]byte(command(t, cli.ExitChanges, "plan", after, "--snapshot", file, "-o", "json", "--exit-code")), &foretold); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(command(t, cli.ExitOK, "plan", after, "--kubeconfig", l.env.Kubeconfig, "-o", "json")), &live); err != nil {
		t.Fatal(err)
	}
	live.Against, live.Fleet.At = foretold.Against, foretold.Fleet.At
	if a, b := encode(t, foretold), encode(t, live); a != b {
		t.Errorf("the cluster's plan isn't its snapshot's:\n%s\n%s", a, b)
	}

	l.asks(after, live.Fleet)

	old := l.machines()
	l.apply(after)
	began := time.Now()
	f := foretold.Fleet
	goes, stays := map[string]bool{}, map[string]bool{}
	for name := range old {
		stays[name] = true
	}
	for _, e := range f.Pools {
		for _, n := range e.Affected {
			if n.Outcome != plan.Held {
				goes[n.Claim] = true
				delete(stays, n.Claim)
			}
		}
	}
	testkit.Await(t, l.kube, "the change to be rolled out", 5*time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		drifted := map[string]bool{}
		for _, c := range list {
			if goes[c.Name] || c.DeletionTimestamp != nil || !apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionReady) {
				return false, c.Name + " is still to go, or to come"
			}
			if apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionDrifted) {
				drifted[c.Name] = true
			}
		}
		return true, fmt.Sprintf("drifted: %v", drifted)
	})
	took := time.Since(began)
	for app, n := range map[string]int{"web": 8, "bound": 1, "free": 1, "calm": 1} {
		l.running(app, n)
	}
	l.settled()
	now := l.machines()
	for name := range stays {
		if now[name] == "" {
			t.Errorf("%s has gone, and the plan said that it stays", name)
		}
	}
	came := map[string]int{}
	for name, kind := range now {
		if old[name] == "" {
			came[kind]++
		}
	}
	want := map[string]int{}
	for _, x := range f.Launches {
		want[x.Type] += x.Count
	}
	if !maps.Equal(came, want) {
		t.Errorf("%v came, and the plan said %v", came, want)
	}
	usd := func(machines map[string]string) (sum int64) {
		for _, kind := range machines {
			p, _ := catalogue.Get().Price(kind, "us-west-2")
			sum += p.OnDemand
		}
		return sum
	}
	if f.Before.MicroUSD != usd(old) || f.After.MicroUSD != usd(now) {
		t.Errorf("cost was %d and is %d, and the plan said %s and %s", usd(old), usd(now), f.Before, f.After)
	}
	drifted := map[string]bool{}
	var list karpenter.NodeClaimList
	if err := l.kube.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if apimeta.IsStatusConditionTrue(list.Items[i].Status.Conditions, karpenter.ConditionDrifted) {
			drifted[list.Items[i].Name] = true
		}
	}
	for _, e := range f.Pools {
		for _, n := range e.Affected {
			if (n.Outcome == plan.Held) != drifted[n.Claim] {
				t.Errorf("%s is drifted now: %t; the plan said %s", n.Claim, drifted[n.Claim], n.Outcome)
			}
		}
	}
	t.Logf("foretold: %d replaced, %d removed, %d held, %s → %s, after %d s; happened: %d gone, %d drifted, $%.4f → $%.4f, after %.1f s",
		f.Replace, f.Remove, f.Hold, f.Before, f.After, f.Seconds, len(goes), len(drifted), float64(usd(old))/1e6, float64(usd(now))/1e6, took.Seconds())
	if f.Replace < 4 || f.Hold != 1 {
		t.Errorf("the case is no case: %d are replaced and %d held", f.Replace, f.Hold)
	}
}

// asks plans with what the controller says of prices and of its flags, from the cluster and
// from a snapshot. All in this test is on-demand, which costs what the catalogue says.
func (l *loop) asks(tree string, without *plan.Fleet) {
	l.t.Helper()
	known := []string{"--kubeconfig", l.env.Kubeconfig, "--controller", "https://" + l.secure, "--insecure-skip-tls-verify", "--token", l.token("planner", true)}
	file := filepath.Join(l.t.TempDir(), "told.json")
	if err := os.WriteFile(file, []byte(command(l.t, cli.ExitOK, append([]string{"snapshot"}, known...)...)), 0o600); err != nil {
		l.t.Fatal(err)
	}
	for name, args := range map[string][]string{"cluster": known, "snapshot": {"--snapshot", file}} {
		var p plan.Plan
		if err := json.Unmarshal([]byte(command(l.t, cli.ExitOK, append([]string{"plan", tree, "-o", "json"}, args...)...)), &p); err != nil {
			l.t.Fatal(err)
		}
		f := p.Fleet
		if f.Prices == nil || f.Prices.From != plan.PricesController || f.Prices.NoSpot || f.Prices.At.IsZero() || f.Prices.Region != "us-west-2" {
			l.t.Errorf("%s: prices are from %+v", name, f.Prices)
		}
		if f.Before != without.Before || f.After != without.After || !slices.Equal(f.Launches, without.Launches) {
			l.t.Errorf("%s: %s to %s with %v; without the controller it was %s to %s with %v", name, f.Before, f.After, f.Launches, without.Before, without.After, without.Launches)
		}
		if !slices.Contains(f.Basis, "The flags that decide are the defaults, as the controller says.") {
			l.t.Errorf("%s: %q", name, f.Basis)
		}
	}
	if out := command(l.t, cli.ExitOK, append([]string{"plan", tree, "--preference-policy", "Ignore"}, known...)...); !strings.Contains(out, "other flags than it does: --preference-policy=Ignore") {
		l.t.Errorf("a flag of one's own:\n%s", out)
	}
}

// machines are the instance types of the claims, by name.
func (l *loop) machines() map[string]string {
	l.t.Helper()
	var list karpenter.NodeClaimList
	if err := l.kube.List(l.t.Context(), &list); err != nil {
		l.t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range list.Items {
		out[c.Name] = c.Labels[corev1.LabelInstanceTypeStable]
	}
	return out
}

func encode(t *testing.T, p plan.Plan) string {
	t.Helper()
	// The picture's own times differ, and so do those that follow from them. The status of
	// an object may have moved on.
	for i := range p.Changes {
		p.Changes[i].ResourceVersion = ""
	}
	p.Fleet.Basis = slices.DeleteFunc(p.Fleet.Basis, func(s string) bool { return strings.HasPrefix(s, "A new node") })
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
