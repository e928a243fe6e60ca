package scale

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// The pool has one type of machine, so that the number of nodes follows from the pods,
// and may consolidate, so that the search for savings is among what rest costs.
const poolYAML = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 30s}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.4xlarge]}
`

const (
	// nodeMilliCPU is less than what an m5.4xlarge leaves to pods, 15,890 m, by less than
	// the smallest of PodsPerNode.
	nodeMilliCPU = 15_800
	// nodeMiB is well below what it leaves of its 64 GiB.
	nodeMiB = 50_000
	// perDeployment is how many pods a Deployment has.
	perDeployment = 500
	// readyLimit bounds the controller's start, growLimit the growth.
	readyLimit = 2 * time.Minute
	growLimit  = 30 * time.Minute
)

// prepare starts the controller and waits until its pool is ready.
func (b *bench) prepare(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("%s is over", readyLimit))
	defer cancel()
	for _, crd := range schemas.CRDs() {
		if err := b.client.Create(ctx, crd); err != nil {
			return fmt.Errorf("install %s: %w", crd.Name, err)
		}
	}
	if err := await.Objects(limited, b.client, &apiextensionsv1.CustomResourceDefinitionList{}, served); err != nil {
		return fmt.Errorf("wait for the CRDs: %w", err)
	}
	class, pool := &aws.EC2NodeClass{}, &karpenter.NodePool{}
	for text, obj := range map[string]client.Object{stack.NodeClass: class, poolYAML: pool} {
		if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
			return fmt.Errorf("read a manifest: %w", err)
		}
		if err := b.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %s: %w", obj.GetName(), err)
		}
	}
	if err := b.coppice.Start(); err != nil {
		return err
	}
	err := await.Object(limited, b.client, &karpenter.NodePoolList{}, types.NamespacedName{Name: pool.Name}, func(p *karpenter.NodePool) (bool, string) {
		if p == nil {
			return false, "no NodePool"
		}
		return meta.IsStatusConditionTrue(p.Status.Conditions, karpenter.ConditionReady), fmt.Sprint(p.Status.Conditions)
	})
	if err != nil {
		return fmt.Errorf("wait until the NodePool is ready: %w", err)
	}
	return nil
}

func served(crds []*apiextensionsv1.CustomResourceDefinition) (bool, string) {
	for _, crd := range crds {
		is := false
		for _, c := range crd.Status.Conditions {
			is = is || c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}
		if !is {
			return false, crd.Name
		}
	}
	return true, ""
}

// arrivals are when Nodes became ready, NodeClaims initialized and pods bound, as a watch
// saw it.
type arrivals struct {
	mu                        sync.Mutex
	ready, initialized, bound map[string]time.Time
	news                      chan struct{}
}

func (a *arrivals) note(in map[string]time.Time, name string, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, had := in[name]; is && !had {
		in[name] = time.Now()
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// ends are the earliest and the latest of some times.
func ends(times map[string]time.Time) (first, last time.Time) {
	for _, at := range times {
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}

// grow creates the pods and waits until all are bound and every NodeClaim is initialized.
// It says how that went.
func (b *bench) grow(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, growLimit, fmt.Errorf("%s is over", growLimit))
	defer cancel()
	a := &arrivals{ready: map[string]time.Time{}, initialized: map[string]time.Time{}, bound: map[string]time.Time{}, news: make(chan struct{}, 1)}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	broken := make(chan error, 3)
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &karpenter.NodeClaimList{}, &corev1.PodList{}} {
		if err := b.watch(watching, list, a, broken); err != nil {
			return "", err
		}
	}
	began := time.Now()
	for at := 0; at < b.cfg.Pods; at += perDeployment {
		if err := b.client.Create(ctx, b.deployment(at/perDeployment, min(perDeployment, b.cfg.Pods-at))); err != nil {
			return "", fmt.Errorf("create a Deployment: %w", err)
		}
	}
	said := time.Now()
	for {
		text, counts, done := a.summary(began, b.cfg)
		if done {
			return text, nil
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			b.say("%s", counts)
		}
		select {
		case <-a.news:
		case err := <-broken:
			return "", err
		case <-ctx.Done():
			return "", fmt.Errorf("%w with %s", context.Cause(ctx), counts)
		}
	}
}

func (a *arrivals) summary(began time.Time, cfg Config) (text, counts string, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts = fmt.Sprintf("%d pods bound, %d nodes ready, %d initialized", len(a.bound), len(a.ready), len(a.initialized))
	if len(a.bound) < cfg.Pods || len(a.initialized) < len(a.ready) {
		return "", counts, false
	}
	first, ready := ends(a.ready)
	_, initialized := ends(a.initialized)
	_, bound := ends(a.bound)
	return fmt.Sprintf("%d pods were bound within %.1f s to %d nodes; the nodes became ready within %.1f s of one another, and all were initialized %.1f s after the last was ready",
		len(a.bound), bound.Sub(began).Seconds(), len(a.ready), ready.Sub(first).Seconds(), initialized.Sub(ready).Seconds()), counts, true
}

// watch notes what comes, from now on, until ctx ends. The server ends watches from time
// to time; the next goes on where the one before ended.
func (b *bench) watch(ctx context.Context, list client.ObjectList, a *arrivals, broken chan<- error) error {
	if err := b.client.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	version := list.GetResourceVersion()
	go func() {
		for ctx.Err() == nil {
			w, err := b.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
			if err != nil {
				broken <- fmt.Errorf("watch %T: %w", list, err)
				return
			}
			for e := range w.ResultChan() {
				o, ok := e.Object.(client.Object)
				if !ok {
					continue // an error, after which the watch ends
				}
				version = o.GetResourceVersion()
				a.take(o)
			}
			w.Stop()
		}
	}()
	return nil
}

// take notes an object as it is.
func (a *arrivals) take(o client.Object) {
	switch o := o.(type) {
	case *corev1.Node:
		a.note(a.ready, o.Name, isReady(o))
	case *karpenter.NodeClaim:
		a.note(a.initialized, o.Name, meta.IsStatusConditionTrue(o.Status.Conditions, karpenter.ConditionInitialized))
	case *corev1.Pod:
		a.note(a.bound, o.Name, o.Namespace == metav1.NamespaceDefault && o.Spec.NodeName != "")
	}
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// deployment is the one of the number, of pods of which a node holds so many and no more.
func (b *bench) deployment(number, replicas int) *appsv1.Deployment {
	each := b.cfg.Pods / b.cfg.Nodes
	name := fmt.Sprintf("app-%03d", number)
	labels := map[string]string{"app": name}
	n := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "app", Image: "public.ecr.aws/eks-distro/kubernetes/pause:3.7",
					// What a pod usually carries, which a cache has to hold or leave out.
					Env:   []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
					Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
					ReadinessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
						TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")},
					}},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(nodeMilliCPU/each), resource.DecimalSI),
						corev1.ResourceMemory: *resource.NewQuantity(int64(nodeMiB/each)<<20, resource.BinarySI),
					}},
				}}},
			},
		},
	}
}
