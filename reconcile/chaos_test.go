package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// chaosKills is how often a controller is killed unless COPPICE_CHAOS_KILLS says
	// otherwise: what fits into a minute.
	chaosKills = 8
	// chaosLease is how long a dead leader holds up the next.
	chaosLease = 3 * time.Second
	// guarded is the size of the workload that a PodDisruptionBudget guards, of
	// which one pod at a time may be away.
	guarded = 6
)

// TestChaos kills controllers with SIGKILL at random moments while workloads grow
// and shrink, Nodes and NodeClaims are deleted, EC2 fails, throttles, is short of
// capacity and loses answers, the API server goes away, and clocks jump. Two replicas take turns
// at leading. In the end there must be one Node and one instance for each NodeClaim,
// nothing may hang, and at no time may the guarded workload have lost more pods than
// its budget allows, or a NodeClaim have had two instances.
//
// COPPICE_CHAOS_SEED repeats a run's decisions.
func TestChaos(t *testing.T) {
	kills, seed := number(t, "COPPICE_CHAOS_KILLS", chaosKills), uint64(number(t, "COPPICE_CHAOS_SEED", int(time.Now().UnixNano()%1e6)))
	t.Logf("%d kills with seed %d; repeat with COPPICE_CHAOS_SEED=%d COPPICE_CHAOS_KILLS=%d", kills, seed, seed, kills)
	c := newChaos(t, seed)

	c.scale("guarded", guarded)
	c.scale("web", 4)
	c.settle("before any kill")
	c.guard()

	// Each kill falls somewhere into the course of a disturbance that begins while a
	// controller leads; earlier ones may still go on.
	leaders := 0
	for n := range kills {
		leader := c.leader()
		what := c.disturb()
		if c.rng.IntN(3) == 0 {
			what += ", and " + c.turn()
		}
		wait := time.Duration(c.rng.IntN(2000)) * time.Millisecond
		time.Sleep(wait) // a kill at a random moment is what is tested
		victim := leader
		if c.rng.IntN(8) == 0 {
			victim = 1 - leader
		} else {
			leaders++
		}
		c.replicas[victim].kill()
		t.Logf("kill %d of %d: replica %d, the leader being %d, %s after %s", n+1, kills, victim, leader, wait, what)
		c.undoubled()
		if n%25 == 24 {
			c.calm()
			c.settle(fmt.Sprintf("after %d kills", n+1))
		}
	}
	c.calm()
	c.settle("after the last kill")
	c.undoubled()
	c.unguard()
	c.scale("web", 0)
	c.scale("batch", 0)
	c.scale("guarded", 0)
	c.settle("with nothing left to run")
	starts := 0
	for _, r := range c.replicas {
		starts += r.starts
	}
	t.Logf("%d kills of which %d hit the leader, %d starts of a controller, %d answers of AWS lost, %d fleets of several instances seen, the guarded workload had %d pods at least",
		kills, leaders, starts, c.aws.lost.Load(), len(c.fleets), c.fewest)
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is no number", variable, text)
	}
	return n
}

type chaos struct {
	t        *testing.T
	rng      *rand.Rand
	kube     client.WithWatch
	sim      simulator
	aws      *lossy
	api      *wire
	replicas []*replica
	sizes    map[string]int32
	fleets   map[string]bool // that were seen

	mu       sync.Mutex
	guarding bool
	fewest   int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	env := testkit.Sandbox(t, "--boot-delay", "400ms", "--boot-jitter", "300ms", "--node-ready-delay", "100ms", "--shutdown-delay", "400ms", "--seed", fmt.Sprint(seed), "--quiet")
	ctrl.SetLogger(logr.Discard())
	kube := testkit.Client(t, env.REST)
	testkit.InstallCRDs(t, kube)
	server, err := url.Parse(env.APIServer)
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), kube: kube, sim: simulator{t, env.EC2},
		aws: newLossy(t, env.EC2, seed), api: newWire(t, server.Host), sizes: map[string]int32{}, fleets: map[string]bool{}, fewest: guarded,
	}
	for _, doc := range strings.Split(strings.Replace(manifest, "{cpu: 40}", "{cpu: 200}", 1), "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := kube.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, logs := kubeconfigVia(t, env.Kubeconfig, c.api.addr), t.TempDir()
	environment := controllerEnv(env, kubeconfig, c.aws.url,
		"LEADER_ELECTION_NAMESPACE=default", "LEADER_ELECTION_LEASE_DURATION="+chaosLease.String(),
		"METRICS_BIND_ADDRESS=0", "HEALTH_PROBE_BIND_ADDRESS=0", "SECURE_BIND_ADDRESS=0")
	for i := range 2 {
		c.replicas = append(c.replicas, startReplica(t, filepath.Join(logs, fmt.Sprintf("replica-%d.log", i)), environment))
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, r := range c.replicas {
				t.Logf("the end of a controller's log:\n%s", logTail(r.log))
			}
		}
	})
	for _, app := range []string{"guarded", "web"} {
		(&loop{t: t, kube: kube}).deploy(app, 0, "1")
	}
	// Those of batch each want a Node of their own, which are launched together.
	(&loop{t: t, kube: kube}).deploy("batch", 0, "1", func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}, TopologyKey: corev1.LabelHostname,
		}}}}
	})
	return c
}

// leader waits until a replica leads and says which.
func (c *chaos) leader() int {
	c.t.Helper()
	leader := -1
	// A lease is asked for within a second or in vain, which a machine that is busy with
	// other things may be too slow for, for a while.
	if seen := until(c.t, 10*time.Minute, func() (bool, string) {
		leader = slices.IndexFunc(c.replicas, (*replica).leads)
		return leader >= 0, "nobody leads"
	}); seen != "" {
		c.t.Fatal(seen)
	}
	return leader
}

func (c *chaos) scale(app string, n int32) {
	c.t.Helper()
	c.sizes[app] = n
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
	if err := c.kube.Patch(c.t.Context(), d, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))); err != nil {
		c.t.Fatal(err)
	}
}

// disturb begins one disturbance, and says which.
func (c *chaos) disturb() string {
	short := ec2sim.Duration(time.Duration(500+c.rng.IntN(2500)) * time.Millisecond)
	switch c.rng.IntN(9) {
	case 0, 1, 2:
		app := []string{"web", "batch"}[c.rng.IntN(2)]
		n := int32(c.rng.IntN(14))
		c.scale(app, n)
		return fmt.Sprintf("%s scaled to %d", app, n)
	case 3:
		return c.deleteOne()
	case 4:
		code := []string{"InternalError", "ServiceUnavailable", "RequestLimitExceeded", "UnauthorizedOperation"}[c.rng.IntN(4)]
		actions := [][]string{{"ec2:CreateFleet"}, {"ec2:TerminateInstances"}, {"ec2:DescribeInstances"}, {"ec2:CreateLaunchTemplate"}}[c.rng.IntN(4)]
		c.sim.do(ec2sim.Step{For: short, Calls: &ec2sim.CallFault{Actions: actions, Code: code, Fraction: 0.7}})
		return fmt.Sprintf("%s fails with %s", actions, code)
	case 5:
		c.sim.do(ec2sim.Step{For: short, Calls: &ec2sim.CallFault{Actions: []string{"ec2:*"}, Delay: ec2sim.Duration(700 * time.Millisecond)}})
		return "EC2 is slow"
	case 6:
		types := [][]string{{"m5.large"}, {"m5.2xlarge"}, {"m5.*"}}[c.rng.IntN(3)]
		c.sim.do(ec2sim.Step{For: short, Shortage: &ec2sim.Shortage{Match: ec2sim.Match{Types: types}}})
		return fmt.Sprintf("a shortage of %s", types)
	case 7:
		c.aws.loss.Store(uint64(200 + c.rng.IntN(600)))
		return fmt.Sprintf("%d ‰ of answers are lost", c.aws.loss.Load())
	}
	c.api.cut()
	down := time.Duration(100+c.rng.IntN(1200)) * time.Millisecond
	time.AfterFunc(down, c.api.mend)
	return fmt.Sprintf("the API server is away for %s", down)
}

// turn makes the clock of a replica wrong, and says by how much.
func (c *chaos) turn() string {
	i := c.rng.IntN(len(c.replicas))
	by := []time.Duration{-2 * time.Hour, -10 * time.Minute, -20 * time.Second, 20 * time.Second, 10 * time.Minute, 2 * time.Hour}[c.rng.IntN(6)]
	c.replicas[i].turn(by)
	return fmt.Sprintf("the clock of replica %d is wrong by %s", i, by)
}

// deleteOne deletes a Node or a NodeClaim as a person would.
func (c *chaos) deleteOne() string {
	claims := c.claims()
	if len(claims) == 0 {
		return "nothing"
	}
	claim := claims[c.rng.IntN(len(claims))]
	if claim.Status.NodeName != "" && c.rng.IntN(2) == 0 {
		testkit.Delete(c.t, c.kube, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Status.NodeName}})
		return "Node " + claim.Status.NodeName + " was deleted"
	}
	testkit.Delete(c.t, c.kube, claim.DeepCopy())
	return "NodeClaim " + claim.Name + " was deleted"
}

// calm ends every disturbance.
func (c *chaos) calm() {
	c.sim.call("DELETE", "effects", nil, nil)
	c.aws.loss.Store(0)
	c.api.mend()
	for _, r := range c.replicas {
		r.turn(0)
	}
}

func (c *chaos) claims() []karpenter.NodeClaim {
	c.t.Helper()
	var list karpenter.NodeClaimList
	if err := c.kube.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// undoubled checks that no claim has two instances and no instance two claims.
func (c *chaos) undoubled() {
	c.t.Helper()
	of := map[string]string{}
	for _, i := range c.sim.live() {
		if token := i.Tags[cloud.TagFleet]; token != "" {
			c.fleets[token] = true
		}
		uid := i.Tags[cloud.TagNodeClaimUID]
		if other, twice := of[uid]; twice && uid != "" {
			c.t.Errorf("instances %s and %s were launched for one NodeClaim, %s", other, i.ID, i.Tags[cloud.TagNodeClaim])
		}
		of[uid] = i.ID
	}
	for _, x := range c.claims() {
		if other, twice := of[x.Status.ProviderID]; twice && x.Status.ProviderID != "" {
			c.t.Errorf("NodeClaims %s and %s have one instance, %s", other, x.Name, x.Status.ProviderID)
		}
		of[x.Status.ProviderID] = x.Name
	}
}

// settle waits until all pods run and claims, Nodes and instances match one another.
// A count below 0 is whatever the workloads ask for.
func (c *chaos) settle(when string) {
	c.t.Helper()
	pods := 0
	for _, n := range c.sizes {
		pods += int(n)
	}
	began := time.Now()
	// A shortage that was met is remembered for three minutes, and then some for a
	// controller that was just killed to find its way.
	if seen := until(c.t, 5*time.Minute, func() (bool, string) { return c.matches(pods) }); seen != "" {
		c.t.Fatalf("%s: %s", when, seen)
	}
	c.t.Logf("%s: settled within %.1f s: %d pods on %d Nodes", when, time.Since(began).Seconds(), pods, len(c.claims()))
}

func (c *chaos) matches(want int) (bool, string) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	ctx := c.t.Context()
	if err := c.kube.List(ctx, &pods, client.InNamespace("default")); err != nil {
		return false, err.Error()
	}
	if err := c.kube.List(ctx, &nodes); err != nil {
		return false, err.Error()
	}
	running := 0
	for _, p := range pods.Items {
		if healthy(&p) {
			running++
		}
	}
	var claimed, joined, launched, unready []string
	for _, x := range c.claims() {
		claimed = append(claimed, x.Status.ProviderID)
		ready := slices.ContainsFunc(x.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == karpenter.ConditionReady && c.Status == metav1.ConditionTrue
		})
		if !ready || x.DeletionTimestamp != nil {
			unready = append(unready, fmt.Sprintf("%s %v", x.Name, x.Status.Conditions))
		}
	}
	for _, n := range nodes.Items {
		joined = append(joined, n.Spec.ProviderID)
	}
	for _, i := range c.sim.live() {
		launched = append(launched, "aws:///"+i.Zone+"/"+i.ID)
	}
	for _, l := range [][]string{claimed, joined, launched} {
		slices.Sort(l)
	}
	ok := running == want && len(pods.Items) == want && len(unready) == 0 && slices.Equal(claimed, joined) && slices.Equal(claimed, launched)
	// A claim that isn't needed any more goes before the state counts as settled.
	if want == 0 {
		ok = ok && len(claimed) == 0
	}
	return ok, fmt.Sprintf("%d of %d pods run (%d exist); NodeClaims %q, Nodes %q, instances %q; not ready: %q",
		running, want, len(pods.Items), claimed, joined, launched, unready)
}

func healthy(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// guard sets the budget of the guarded workload and watches it from now on.
func (c *chaos) guard() {
	c.t.Helper()
	least := intstr.FromInt32(guarded - 1)
	labels := map[string]string{"app": "guarded"}
	if err := c.kube.Create(c.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guarded"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}); err != nil {
		c.t.Fatal(err)
	}
	c.guarding = true
	ctx, stop := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	c.t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.watchGuarded(ctx, labels)
		}
	}()
}

func (c *chaos) unguard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guarding = false
}

// watchGuarded counts the healthy pods of the guarded workload at each change.
func (c *chaos) watchGuarded(ctx context.Context, labels client.MatchingLabels) {
	var list corev1.PodList
	if err := c.kube.List(ctx, &list, labels); err != nil {
		return
	}
	up := map[string]bool{}
	for i := range list.Items {
		up[list.Items[i].Name] = healthy(&list.Items[i])
	}
	w, err := c.kube.Watch(ctx, &corev1.PodList{}, labels, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		p, ok := event.Object.(*corev1.Pod)
		if !ok {
			return
		}
		up[p.Name] = event.Type != "DELETED" && healthy(p)
		n := 0
		for _, is := range up {
			if is {
				n++
			}
		}
		c.mu.Lock()
		if c.guarding {
			c.fewest = min(c.fewest, n)
			if n < guarded-1 {
				c.t.Errorf("%d guarded pods are healthy, the budget wants %d; the last change was of %s on %s", n, guarded-1, p.Name, p.Spec.NodeName)
			}
		}
		c.mu.Unlock()
	}
}
