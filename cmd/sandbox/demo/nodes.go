package demo

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// workloadPods is how many pods the example's workloads have.
	workloadPods = 65
	// bindLimit is how soon after their creation all of them must be bound.
	bindLimit = 12 * time.Second
)

// workloads are the files below examples/workloads.
func workloads() []string { return []string{"scale-up.yaml", "mixed.yaml"} }

// pendingPods is step 4.
func pendingPods(ctx context.Context, s *scene) error {
	created := time.Now()
	for _, file := range workloads() {
		text, err := os.ReadFile(filepath.Join(s.cfg.Examples, "workloads", file))
		if err != nil {
			return fmt.Errorf("read a workload: %w", err)
		}
		n, err := s.applyYAML(ctx, text)
		if err != nil {
			return err
		}
		s.story.say("kubectl apply examples/workloads/%s: %d Deployment(s)", file, n)
	}
	bound, err := s.awaitBound(ctx, workloadPods)
	if err != nil {
		return err
	}
	took := bound.Sub(created)
	s.story.say("all %d pods are bound, %.1f s after they were asked for", workloadPods, took.Seconds())
	if err := s.awaitRunning(ctx, workloadPods); err != nil {
		return err
	}
	if err := s.awaitInitialized(ctx); err != nil {
		return err
	}
	s.story.say("all pods run, all nodes are initialized")
	nodes, dollars, err := s.nodeTable(ctx)
	if err != nil {
		return err
	}
	limit := s.patient(bindLimit)
	s.story.fact("%d pods bound in %.1f s (limit %.0f s) on %d nodes at $%.4f/h", workloadPods, took.Seconds(), limit.Seconds(), nodes, dollars)
	if took > limit {
		return fmt.Errorf("the last pod was bound after %.1f s, %s is the limit", took.Seconds(), limit)
	}
	return nil
}

// awaitBound waits until n pods are bound, and returns when that was seen.
func (s *scene) awaitBound(ctx context.Context, n int, opts ...client.ListOption) (time.Time, error) {
	err := await.Objects(ctx, s.client, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		bound := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				bound++
			}
		}
		return bound == n, fmt.Sprintf("%d of %d pods bound", bound, n)
	}, append(opts, client.InNamespace("default"))...)
	return time.Now(), err
}

func (s *scene) awaitRunning(ctx context.Context, n int, opts ...client.ListOption) error {
	return await.Objects(ctx, s.client, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		running := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				running++
			}
		}
		return running == n && len(pods) == n, fmt.Sprintf("%d of %d pods run", running, len(pods))
	}, append(opts, client.InNamespace("default"))...)
}

func (s *scene) awaitInitialized(ctx context.Context) error {
	return await.Objects(ctx, s.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		ready := 0
		for _, c := range claims {
			if meta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized) {
				ready++
			}
		}
		return ready == len(claims), fmt.Sprintf("%d of %d NodeClaims are initialized", ready, len(claims))
	})
}

// live are the simulator's machines that cost money.
func (s *scene) live() map[string]ec2sim.Instance {
	out := map[string]ec2sim.Instance{}
	for _, i := range s.stack.EC2.Instances() {
		if i.State == "pending" || i.State == "running" {
			out[i.ID] = i
		}
	}
	return out
}

// nodeTable prints every node with what it costs.
func (s *scene) nodeTable(ctx context.Context) (nodes int, dollars float64, err error) {
	var list corev1.NodeList
	if err := s.client.List(ctx, &list, stack.NotSystem()); err != nil {
		return 0, 0, fmt.Errorf("list nodes: %w", err)
	}
	var pods corev1.PodList
	if err := s.client.List(ctx, &pods); err != nil {
		return 0, 0, fmt.Errorf("list pods: %w", err)
	}
	count := map[string]int{}
	for _, p := range pods.Items {
		count[p.Spec.NodeName]++
	}
	live := s.live()
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	const format = "%-45s %-12s %-11s %-10s %4v  %s"
	s.story.detail(format, "node", "type", "zone", "capacity", "pods", "$/h")
	var micro int64
	for _, n := range list.Items {
		inst, ok := live[path.Base(n.Spec.ProviderID)]
		if !ok {
			return 0, 0, fmt.Errorf("node %s has no live instance", n.Name)
		}
		l := n.Labels
		s.story.detail(format, n.Name, l[corev1.LabelInstanceTypeStable], l[corev1.LabelTopologyZone], l[karpenter.LabelCapacityType],
			count[n.Name], fmt.Sprintf("%.4f", float64(inst.MicroUSD)/1e6))
		micro += inst.MicroUSD
	}
	dollars = float64(micro) / 1e6
	s.story.detail(format, fmt.Sprintf("%d nodes", len(list.Items)), "", "", "", len(pods.Items), fmt.Sprintf("%.4f", dollars))
	return len(list.Items), dollars, nil
}

// scaleToZero is step 8.
func scaleToZero(ctx context.Context, s *scene) error {
	// Each node goes through these, in order; when the first did is told.
	var mu sync.Mutex
	first := map[string]time.Time{}
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if first[what].IsZero() {
			first[what] = time.Now()
		}
	}
	stop := s.stack.EC2.Watch(func(i ec2sim.Instance) { note(i.State) })
	defer stop()

	began := time.Now()
	if err := s.client.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace("default"), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return fmt.Errorf("delete the Deployments: %w", err)
	}
	s.story.say("kubectl delete deployments --all")
	err := await.Objects(ctx, s.client, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string) {
		var tainted int
		for _, n := range nodes {
			if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpenter.TaintDisrupted }) {
				tainted++
				note("tainted")
			}
		}
		return len(nodes) == 0, fmt.Sprintf("%d nodes left, %d of them tainted", len(nodes), tainted)
	}, stack.NotSystem())
	if err != nil {
		return err
	}
	if err := s.awaitNoClaims(ctx); err != nil {
		return err
	}
	if live := s.live(); len(live) > 0 {
		return fmt.Errorf("%d instances are left in the simulator", len(live))
	}
	took := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	for _, what := range []string{"tainted", "shutting-down", "terminated"} {
		if first[what].IsZero() {
			return fmt.Errorf("no node was seen %s", what)
		}
	}
	after := func(what string) float64 { return first[what].Sub(began).Seconds() }
	s.story.say("the first node was tainted after %.1f s, shutting down after %.1f s, terminated after %.1f s", after("tainted"), after("shutting-down"), after("terminated"))
	s.story.say("no node, no NodeClaim and no instance is left after %.1f s", took.Seconds())
	s.story.fact("nothing left after %.1f s", took.Seconds())
	return nil
}

func (s *scene) awaitNoClaims(ctx context.Context) error {
	return await.Objects(ctx, s.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		return len(claims) == 0, fmt.Sprintf("%d NodeClaims left", len(claims))
	})
}

// shortLivedPod is the workload of the pool whose nodes expire.
const shortLivedPod = "short-lived"

// expiryBegins is step 9.
func expiryBegins(ctx context.Context, s *scene) error {
	d := workload(shortLivedPod, 1, "500m", "256Mi")
	d.Spec.Template.Spec.NodeSelector = map[string]string{"example.com/lives": "shortly"}
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/lives", Operator: corev1.TolerationOpExists}}
	if err := s.client.Create(ctx, d); err != nil {
		return fmt.Errorf("create a Deployment: %w", err)
	}
	s.story.say("one pod for the pool short-lived, whose nodes expire after 20 s")
	if err := s.awaitRunning(ctx, 1); err != nil {
		return err
	}
	err := await.Objects(ctx, s.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		if len(claims) == 1 && claims[0].Status.NodeName != "" {
			s.old = claims[0]
		}
		return s.old != nil, fmt.Sprintf("%d NodeClaims", len(claims))
	})
	if err != nil {
		return err
	}
	s.story.say("it runs on %s (NodeClaim %s)", s.old.Status.NodeName, s.old.Name)
	s.story.fact("NodeClaim %s with expireAfter 20s", s.old.Name)
	return s.awaitQuiet(ctx)
}

// expiryEnds is step 11.
func expiryEnds(ctx context.Context, s *scene) error {
	var next *karpenter.NodeClaim
	err := await.Objects(ctx, s.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		next = nil
		oldLeft := false
		for _, c := range claims {
			switch {
			case c.UID == s.old.UID:
				oldLeft = true
			case meta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized):
				next = c
			}
		}
		return !oldLeft && next != nil, fmt.Sprintf("%d NodeClaims, the old one left: %t", len(claims), oldLeft)
	}, client.MatchingLabels{karpenter.LabelNodePool: s.old.Labels[karpenter.LabelNodePool]})
	if err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, 1, client.MatchingLabels{"app": shortLivedPod}); err != nil {
		return err
	}
	age := time.Since(s.old.CreationTimestamp.Time)
	s.story.say("%.0f s after its creation NodeClaim %s is gone, and the pod runs on %s (NodeClaim %s)", age.Seconds(), s.old.Name, next.Status.NodeName, next.Name)
	s.story.fact("replaced within %.0f s of its creation", age.Seconds())
	return nil
}

// crashPods is enough for several launches.
const crashPods = 12

// crash is step 10.
func crash(ctx context.Context, s *scene) error {
	launched := make(chan string, 1)
	stop := s.stack.EC2.Watch(func(i ec2sim.Instance) {
		if i.State == "pending" {
			select {
			case launched <- i.ID:
			default:
			}
		}
	})
	defer stop()
	if err := s.client.Create(ctx, workload("crash", crashPods, "1", "1Gi")); err != nil {
		return fmt.Errorf("create a Deployment: %w", err)
	}
	select {
	case id := <-launched:
		s.coppice.Kill()
		s.story.say("kill -9 of the controller at the moment when EC2 launched %s", id)
	case <-ctx.Done():
		return fmt.Errorf("wait for a launch: %w", context.Cause(ctx))
	}
	known, err := s.claimsByInstance(ctx)
	if err != nil {
		return err
	}
	s.story.say("EC2 has %d instances, of which the API server knows %d", len(s.live()), len(known))
	if err := s.coppice.Start(); err != nil {
		return err
	}
	began := time.Now()
	if _, err := s.awaitBound(ctx, crashPods, client.MatchingLabels{"app": "crash"}); err != nil {
		return err
	}
	if err := s.awaitInitialized(ctx); err != nil {
		return err
	}
	// A node of the step before may still be on its way out.
	err = await.Objects(ctx, s.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		going := slices.ContainsFunc(claims, func(c *karpenter.NodeClaim) bool { return c.DeletionTimestamp != nil })
		return !going, "a NodeClaim is being deleted"
	})
	if err != nil {
		return err
	}
	if known, err = s.claimsByInstance(ctx); err != nil {
		return err
	}
	live := s.live()
	for id := range live {
		if known[id] == "" {
			return fmt.Errorf("instance %s has no NodeClaim: it leaked", id)
		}
	}
	if len(known) != len(live) {
		return fmt.Errorf("EC2 has %d instances and the API server %d NodeClaims", len(live), len(known))
	}
	s.story.say("started again: %d pods bound %.1f s later, %d instances for %d NodeClaims", crashPods, time.Since(began).Seconds(), len(live), len(known))
	s.story.fact("%d instances, %d NodeClaims", len(live), len(known))
	return nil
}

// claimsByInstance maps instance IDs to the claims that have them.
func (s *scene) claimsByInstance(ctx context.Context) (map[string]string, error) {
	var list karpenter.NodeClaimList
	if err := s.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list NodeClaims: %w", err)
	}
	out := map[string]string{}
	for _, c := range list.Items {
		if c.Status.ProviderID == "" {
			continue
		}
		id := path.Base(c.Status.ProviderID)
		if other := out[id]; other != "" {
			return nil, fmt.Errorf("NodeClaims %s and %s share instance %s", other, c.Name, id)
		}
		out[id] = c.Name
	}
	return out, nil
}

// workload is a Deployment of pods that do nothing.
func workload(name string, replicas int32, cpu, memory string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "pause", Image: "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
					}},
				}}},
			},
		},
	}
}
