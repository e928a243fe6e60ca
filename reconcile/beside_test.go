package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/reconcile/lifecycle"
	"github.com/coppice-dev/coppice/reconcile/provision"
	schemasaws "github.com/coppice-dev/coppice/schemas/aws"
	sourceapi "github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// besidePools is the class and the pool of manifest that the test's nodes come
// from, in CUE.
const besidePools = `package cluster

import (
	aws "coppice.dev/schemas/aws/v1"
	karpenter "coppice.dev/schemas/karpenter/v1"
)

nodePools: [string]:   karpenter.#NodePool
nodeClasses: [string]: aws.#EC2NodeClass

nodeClasses: default: spec: {
	amiSelectorTerms: [{alias: "al2023@latest"}]
	role: "KarpenterNodeRole"
	subnetSelectorTerms: [{tags: "karpenter.sh/discovery": "true"}]
	securityGroupSelectorTerms: [{tags: "karpenter.sh/discovery": "true"}]
}

nodePools: general: spec: {
	limits: cpu: 40
	disruption: {consolidationPolicy: "WhenEmpty", consolidateAfter: "Never", budgets: [{nodes: "100%%"}]}
	template: {
		metadata: labels: team: "%s"
		spec: {
			nodeClassRef: {group: "karpenter.k8s.aws", kind: "EC2NodeClass", name: "default"}
			requirements: [
				{key: "karpenter.sh/capacity-type", operator: "In", values: ["on-demand"]},
				{key: "node.kubernetes.io/instance-type", operator: "In", values: ["m5.large", "m5.xlarge", "m5.2xlarge"]},
			]
		}
	}
}
`

// TestBesideKarpenter moves a running fleet from Karpenter to Coppice and back.
func TestBesideKarpenter(t *testing.T) {
	l := prepare(t, nodeClass+strings.SplitN(manifest, "---\n", 3)[1], "--boot-delay", "500ms")
	ctx := t.Context()
	stop := l.run(reconcile.Options{})
	l.deploy("web", 6, "1")
	l.running("web", 6)
	l.settled()
	stop()
	l.asKarpenter()
	before := l.fleetOf()

	t.Log("with the engine off, Git is applied and nothing else is touched")
	server := testkit.Git(t, "fleet")
	remote := git.Remote{URL: server.Repo("fleet"), Auth: git.Auth{Username: server.Username, Password: server.Password}}
	commit := func(team string) {
		t.Helper()
		if _, err := remote.Push(ctx, git.Write{
			Branch: "main", Message: "pools\n", Author: git.Identity{Name: "Ada", Email: "ada@example.com"}, Now: time.Now(),
			Files: map[string][]byte{
				"cue.mod/module.cue": []byte("module: \"example.com/fleet@v0\"\nlanguage: version: \"v0.17.0\"\n"),
				"pools.cue":          fmt.Appendf(nil, besidePools, team),
			},
		}, git.Retry{}); err != nil {
			t.Fatal(err)
		}
	}
	commit("web")
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "git"}, StringData: map[string]string{"username": server.Username, "password": server.Password}},
		&sourceapi.NodeSource{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "fleet"}, Spec: sourceapi.NodeSourceSpec{
			URL: remote.URL, SecretRef: &sourceapi.SecretReference{Name: "git"}, Interval: metav1.Duration{Duration: time.Second},
		}},
	} {
		if err := l.kube.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	stop = l.run(reconcile.Options{EngineOff: true})
	testkit.AwaitObject(t, l.kube, "the pool to be as in Git", time.Minute, &karpenter.NodePoolList{}, types.NamespacedName{Name: "general"}, func(p *karpenter.NodePool) (bool, string) {
		return p.Spec.Template.Labels["team"] == "web", fmt.Sprint(p.Spec.Template.Labels)
	})
	l.deploy("more", 12, "1")
	time.Sleep(3 * time.Second) // an engine would have opened nodes by now
	l.same(before, "with the engine off")
	l.untouched()

	t.Log("the engine doesn't start while Karpenter leads")
	stop()
	lease := l.karpenterLeads()
	o := reconcile.Options{
		Kube: l.env.REST, Cloud: l.cloud, Batch: provision.DefaultBatch, Timeouts: lifecycle.DefaultTimeouts,
		MetricsAddress: "0", HealthAddress: "0", SecureAddress: l.secure, LeaseDuration: 15 * time.Second,
	}
	if err := reconcile.Run(ctx, o); err == nil || !strings.Contains(err.Error(), "karpenter-0 holds Lease kube-system/karpenter-leader-election") {
		t.Fatalf("with Karpenter leading, the controllers ended with %v", err)
	}

	t.Log("switched on, it adopts every node and replaces none")
	lease.Spec.HolderIdentity = ptr.To("")
	if err := l.kube.Update(ctx, lease); err != nil {
		t.Fatal(err)
	}
	stop = l.run(reconcile.Options{})
	l.running("more", 12)
	l.settled()
	l.same(before, "with the engine on")
	testkit.Await(t, l.kube, "every claim to carry our hash", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		for _, c := range list {
			if c.Annotations[karpenter.AnnotationNodePoolHashVersion] != karpenter.NodePoolHashVersion || c.Annotations[schemasaws.AnnotationEC2NodeClassHashVersion] != schemasaws.EC2NodeClassHashVersion {
				return false, fmt.Sprintf("%s: %v", c.Name, c.Annotations)
			}
			if apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionDrifted) {
				t.Errorf("%s has drifted by the move", c.Name)
			}
		}
		return true, ""
	})

	t.Log("switched off again, nodes and claims are as they were, and Karpenter can tell whose hashes they carry")
	stop()
	grown := l.fleetOf()
	stop = l.run(reconcile.Options{EngineOff: true})
	time.Sleep(3 * time.Second)
	stop()
	l.same(grown, "after the way back")
	var pool karpenter.NodePool
	if err := l.kube.Get(ctx, types.NamespacedName{Name: "general"}, &pool); err != nil {
		t.Fatal(err)
	}
	if v := pool.Annotations[karpenter.AnnotationNodePoolHashVersion]; v != karpenter.NodePoolHashVersion {
		t.Errorf("the pool's hash is of version %q, which Karpenter would take for its own", v)
	}

	t.Log("a change after the move rolls the adopted nodes out")
	commit("api")
	l.run(reconcile.Options{})
	testkit.Await(t, l.kube, "an adopted claim to drift", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		for _, c := range list {
			if c.Labels["team"] == "api" || apimeta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionDrifted) {
				return true, ""
			}
		}
		return false, "none has"
	})
}

// asKarpenter makes the fleet look as Karpenter leaves it: its hashes under its
// versions, and none of our tags on the instances.
func (l *loop) asKarpenter() {
	l.t.Helper()
	ctx := l.t.Context()
	mark := func(o client.Object, notes map[string]string) {
		l.t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, strings.Join(func() (out []string) {
			for _, k := range []string{karpenter.AnnotationNodePoolHash, karpenter.AnnotationNodePoolHashVersion, schemasaws.AnnotationEC2NodeClassHash, schemasaws.AnnotationEC2NodeClassHashVersion} {
				if v, ok := notes[k]; ok {
					out = append(out, fmt.Sprintf("%q:%q", k, v))
				}
			}
			return out
		}(), ","))
		if err := l.kube.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("karpenter")); err != nil {
			l.t.Fatal(err)
		}
	}
	pool := map[string]string{karpenter.AnnotationNodePoolHash: "6821555240594823858", karpenter.AnnotationNodePoolHashVersion: "v3"}
	class := map[string]string{schemasaws.AnnotationEC2NodeClassHash: "14331829340211457362", schemasaws.AnnotationEC2NodeClassHashVersion: "v5"}
	both := map[string]string{}
	for _, m := range []map[string]string{pool, class} {
		for k, v := range m {
			both[k] = v
		}
	}
	mark(&karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}, pool)
	mark(&schemasaws.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, class)
	var claims karpenter.NodeClaimList
	if err := l.kube.List(ctx, &claims); err != nil {
		l.t.Fatal(err)
	}
	for i := range claims.Items {
		mark(&claims.Items[i], both)
	}
	instances, err := l.cloud.Instances(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	api := ec2.NewFromConfig(cfg)
	for _, i := range instances {
		if _, err := api.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{i.ID}, Tags: []ec2types.Tag{{Key: aws.String(cloud.TagNodeClaimUID)}}}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// karpenterLeads makes the Lease that a running Karpenter holds.
func (l *loop) karpenterLeads() *coordinationv1.Lease {
	l.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "karpenter-leader-election"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("karpenter-0"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NowMicro()),
	}}
	if err := l.kube.Create(l.t.Context(), lease); err != nil {
		l.t.Fatal(err)
	}
	return lease
}

// fleetOf lists the claims' UIDs by name, and the instances by theirs.
func (l *loop) fleetOf() map[string]string {
	l.t.Helper()
	var claims karpenter.NodeClaimList
	if err := l.kube.List(l.t.Context(), &claims); err != nil {
		l.t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range claims.Items {
		out[c.Name] = string(c.UID) + " " + c.Status.ProviderID
	}
	if len(out) == 0 {
		l.t.Fatal("there are no claims")
	}
	return out
}

// same fails if a machine of before isn't there any more, or is on its way out.
func (l *loop) same(before map[string]string, when string) {
	l.t.Helper()
	now := l.fleetOf()
	for name, id := range before {
		if now[name] != id {
			l.t.Errorf("%s, claim %s is %q, was %q", when, name, now[name], id)
		}
	}
	var claims karpenter.NodeClaimList
	if err := l.kube.List(l.t.Context(), &claims); err != nil {
		l.t.Fatal(err)
	}
	for _, c := range claims.Items {
		if before[c.Name] != "" && c.DeletionTimestamp != nil {
			l.t.Errorf("%s, claim %s is being deleted", when, c.Name)
		}
	}
}

// untouched checks what a controller without an engine has written: of pools what
// Git holds, of classes, claims and Nodes nothing.
func (l *loop) untouched() {
	l.t.Helper()
	ctx := context.WithoutCancel(l.t.Context())
	var pools karpenter.NodePoolList
	if err := l.kube.List(ctx, &pools); err != nil {
		l.t.Fatal(err)
	}
	for _, p := range pools.Items {
		if p.Annotations[karpenter.AnnotationNodePoolHashVersion] != "v3" {
			l.t.Errorf("the hash of NodePool %s is now %v", p.Name, p.Annotations)
		}
		for _, f := range p.ManagedFields {
			if f.Manager == "coppice" && (f.Subresource != "" || strings.Contains(string(f.FieldsV1.Raw), "f:annotations") || strings.Contains(string(f.FieldsV1.Raw), "f:finalizers") || strings.Contains(string(f.FieldsV1.Raw), "f:status")) {
				l.t.Errorf("NodePool %s: %s wrote %s %s", p.Name, f.Manager, f.Subresource, f.FieldsV1.Raw)
			}
		}
	}
	var claims karpenter.NodeClaimList
	if err := l.kube.List(ctx, &claims); err != nil {
		l.t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.Annotations[karpenter.AnnotationNodePoolHashVersion] != "v3" || c.Annotations[schemasaws.AnnotationEC2NodeClassHashVersion] != "v5" {
			l.t.Errorf("NodeClaim %s is now %v", c.Name, c.Annotations)
		}
	}
	var class schemasaws.EC2NodeClass
	if err := l.kube.Get(ctx, types.NamespacedName{Name: "default"}, &class); err != nil || class.Annotations[schemasaws.AnnotationEC2NodeClassHashVersion] != "v5" {
		l.t.Errorf("EC2NodeClass default: %v %v", class.Annotations, err)
	}
}
