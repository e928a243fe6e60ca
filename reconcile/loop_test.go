package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/reconcile"
	"github.com/coppice-dev/coppice/reconcile/lifecycle"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// nodeClass is an EC2NodeClass as users of Karpenter have them, in plain YAML.
const nodeClass = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: KarpenterNodeRole
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: "true"}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: "true"}}]
---
`

const manifest = nodeClass + `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  limits: {cpu: 40}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s, budgets: [{nodes: "100%"}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge, m5.2xlarge]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: strict}
spec:
  limits: {cpu: 2}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      terminationGracePeriod: 5s
      taints: [{key: strict, effect: NoSchedule}]
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
`

type loop struct {
	t     *testing.T
	env   *testkit.Env
	kube  client.WithWatch
	cloud *ec2.Provider
	// account is the controllers' way to the API server, with the rights of an installed one.
	account *rest.Config
	// secure is where the decision record is served.
	secure string
	// acts counts what the controllers write; options and stop are of the last run.
	acts    acts
	options reconcile.Options
	stop    func()
}

// start runs all controllers against a sandbox until the test ends.
func start(t *testing.T) *loop {
	t.Helper()
	l := prepare(t, manifest, "--boot-delay", "500ms")
	l.run(reconcile.Options{})
	return l
}

// prepare starts a sandbox and creates objects in it.
func prepare(t *testing.T, manifest string, flags ...string) *loop {
	t.Helper()
	env := testkit.Sandbox(t, append(flags, "--node-ready-delay", "200ms", "--shutdown-delay", "500ms")...)
	env.Setenv(t)
	ctrl.SetLogger(logr.Discard())
	kube := testkit.Client(t, env.REST)
	account := testkit.AsInstalled(t, kube, env.REST, "default")
	testkit.InstallCRDs(t, kube)
	provider, err := ec2.New(t.Context(), ec2.Config{
		ClusterName: env.ClusterName, ClusterEndpoint: env.APIServer, InterruptionQueue: env.Queue,
		KubernetesVersion: func(context.Context) (string, error) { return "1.37", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := listener.Addr().String()
	listener.Close()
	l := &loop{t: t, env: env, kube: kube, account: account, cloud: provider, secure: secure}
	l.create(manifest)
	return l
}

// create creates objects, as YAML documents.
func (l *loop) create(manifest string) {
	l.t.Helper()
	for _, doc := range strings.Split(manifest, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			l.t.Fatal(err)
		}
		if err := l.kube.Create(l.t.Context(), u); err != nil {
			l.t.Fatal(err)
		}
	}
}

// run runs the controllers until stop or the test's end.
func (l *loop) run(o reconcile.Options) (stop func()) {
	l.t.Helper()
	l.options = o
	o.Kube, o.Cloud, o.Batch = rest.CopyConfig(l.account), l.cloud, provision.DefaultBatch
	o.Kube.Wrap(l.acts.watch)
	o.MetricsAddress, o.HealthAddress, o.SecureAddress, o.LeaseDuration = "0", "0", l.secure, 15*time.Second
	if o.Timeouts == (lifecycle.Timeouts{}) {
		o.Timeouts = lifecycle.DefaultTimeouts
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- reconcile.Run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			l.t.Errorf("controllers ended with %v", err)
		}
		if denied := l.acts.forbidden(); len(denied) > 0 {
			l.t.Errorf("an installed controller has no right to %q", denied)
		}
	})
	l.t.Cleanup(stop)
	l.stop = stop
	return stop
}

func (l *loop) deploy(name string, replicas int32, cpu string, alter ...func(*corev1.PodTemplateSpec)) {
	l.t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "pause", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}}},
	}}
	for _, f := range alter {
		f(&d.Spec.Template)
	}
	if err := l.kube.Create(l.t.Context(), d); err != nil {
		l.t.Fatal(err)
	}
}

func strict(p *corev1.PodTemplateSpec) {
	p.Spec.Tolerations = []corev1.Toleration{{Key: "strict", Operator: corev1.TolerationOpExists}}
	p.Spec.NodeSelector = map[string]string{karpenter.LabelNodePool: "strict"}
}

// running waits until a Deployment has n pods that run, and returns their Nodes.
func (l *loop) running(app string, n int) map[string]bool {
	l.t.Helper()
	nodes := map[string]bool{}
	testkit.Await(l.t, l.kube, fmt.Sprintf("%d pods of %s to run", n, app), time.Minute, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		clear(nodes)
		up := 0
		for _, p := range pods {
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				up++
				nodes[p.Spec.NodeName] = true
			}
		}
		return up == n, fmt.Sprintf("%d of %d pods run", up, len(pods))
	}, client.MatchingLabels{"app": app})
	return nodes
}

// settled waits until every claim is ready and checks that there is one instance
// for each.
func (l *loop) settled() {
	l.t.Helper()
	claims := 0
	testkit.Await(l.t, l.kube, "every NodeClaim to be ready", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		claims = len(list)
		for _, c := range list {
			ready := false
			for _, x := range c.Status.Conditions {
				ready = ready || x.Type == karpenter.ConditionReady && x.Status == metav1.ConditionTrue
			}
			if !ready || c.DeletionTimestamp != nil {
				return false, fmt.Sprintf("%s: %v", c.Name, c.Status.Conditions)
			}
		}
		return true, ""
	})
	instances, err := l.cloud.Instances(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	if len(instances) != claims {
		l.t.Errorf("%d instances for %d NodeClaims", len(instances), claims)
	}
}

// told waits for an event about an object of a name prefix that says what is wanted.
func (l *loop) told(prefix, reason, text string) {
	l.t.Helper()
	testkit.Await(l.t, l.kube, fmt.Sprintf("event %s with %q", reason, text), 30*time.Second, &eventsv1.EventList{}, func(list []*eventsv1.Event) (bool, string) {
		var seen []string
		for _, e := range list {
			if strings.HasPrefix(e.Regarding.Name, prefix) && e.Reason == reason {
				if strings.Contains(e.Note, text) {
					return true, ""
				}
				seen = append(seen, e.Note)
			}
		}
		return false, strings.Join(seen, " | ")
	})
}

func TestLoop(t *testing.T) {
	l := start(t)

	t.Log("pods that fit nowhere get nodes")
	l.deploy("web", 6, "1")
	first := l.running("web", 6)
	l.settled()
	l.twice()

	t.Log("a deleted Node is drained within its PodDisruptionBudget, and replaced")
	five := intstr.FromInt32(5)
	if err := l.kube.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &five, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}); err != nil {
		t.Fatal(err)
	}
	var gone string
	for gone = range first {
		break
	}
	testkit.Delete(t, l.kube, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gone}})
	fewest := 6
	testkit.Await(t, l.kube, "the pods to leave the deleted Node", time.Minute, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		up, still := 0, 0
		for _, p := range pods {
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				up++
				if p.Spec.NodeName == gone {
					still++
				}
			}
		}
		fewest = min(fewest, up)
		return up == 6 && still == 0, fmt.Sprintf("%d run, %d of them on %s", up, still, gone)
	}, client.MatchingLabels{"app": "web"})
	if fewest < 5 {
		t.Errorf("only %d pods ran at one time; the PodDisruptionBudget wants 5", fewest)
	}
	testkit.AwaitGone(t, l.kube, time.Minute, &corev1.NodeList{}, types.NamespacedName{Name: gone})
	l.settled()

	t.Log("a pod that no type can hold is told why")
	l.deploy("huge", 1, "64")
	l.told("huge", "FailedScheduling", "no instance type has enough cpu")
	l.explains("huge", "TooLarge")
	testkit.Delete(t, l.kube, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "huge"}})

	t.Log("a pool that no instance type suits says so, and why")
	l.create(`
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: nowhere}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m55]}
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
`)
	l.told("nowhere", "NoCompatibleInstanceTypes", "without what is required of karpenter.k8s.aws/instance-family there would be ")
	says := func(want bool) {
		testkit.AwaitObject(t, l.kube, fmt.Sprintf("NoCompatibleInstanceTypes to be there: %t", want), time.Minute, &karpenter.NodePoolList{}, types.NamespacedName{Name: "nowhere"}, func(p *karpenter.NodePool) (bool, string) {
			return p != nil && apimeta.IsStatusConditionTrue(p.Status.Conditions, karpenter.ConditionNoCompatibleInstanceTypes) == want, "it isn't so"
		})
	}
	says(true)
	if err := l.kube.Patch(t.Context(), &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}},
		client.RawPatch(types.JSONPatchType, []byte(`[{"op": "remove", "path": "/spec/template/spec/requirements/0"}]`))); err != nil {
		t.Fatal(err)
	}
	says(false)
	testkit.Delete(t, l.kube, &karpenter.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}})

	t.Log("limits hold, and are named")
	l.deploy("guarded", 1, "1", strict, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{karpenter.AnnotationDoNotDisrupt: "true"}
	})
	nodes := l.running("guarded", 1)
	l.deploy("over", 1, "1", strict)
	l.told("over", "FailedScheduling", "limit for cpu")
	testkit.Delete(t, l.kube, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "over"}})

	t.Log("a termination grace period outranks do-not-disrupt")
	for name := range nodes {
		testkit.Delete(t, l.kube, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		testkit.AwaitGone(t, l.kube, time.Minute, &corev1.NodeList{}, types.NamespacedName{Name: name})
	}

	t.Log("without pods nothing is left")
	for _, app := range []string{"web", "guarded"} {
		testkit.Delete(t, l.kube, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}})
	}
	testkit.Await(t, l.kube, "every NodeClaim to go", time.Minute, &karpenter.NodeClaimList{}, func(list []*karpenter.NodeClaim) (bool, string) {
		return len(list) == 0, fmt.Sprintf("%d are left", len(list))
	})
	instances, err := l.cloud.Instances(t.Context())
	if err != nil || len(instances) != 0 {
		t.Errorf("%d instances are left (%v)", len(instances), err)
	}
}
