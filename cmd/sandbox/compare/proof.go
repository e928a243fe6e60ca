package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// proofLimit bounds each step of the proof.
	proofLimit = 2 * time.Minute
	// noticeTime is how long EC2 leaves a spot instance after its warning.
	noticeTime = 2 * time.Minute
)

// prove lets a controller do with the demo's objects what EC2 and the API server
// must be good enough for: scale up, consolidate, survive a spot interruption and
// scale to nothing.
func (b *bench) prove(ctx context.Context, who *contender) error {
	b.say("%s: %s scales the demo's pods up and down, consolidates and survives a spot interruption", proofName, who.name)
	r := &run{bench: b, who: who, stop: func() {}}
	if err := b.sweep(ctx); err != nil {
		return err
	}
	// The demo's repository as plain objects, the same that Coppice applies.
	objects, err := (&contender{coppice, who.Program}).render(ctx, b.cfg)
	if err != nil {
		return err
	}
	if err := b.apply(ctx, objects); err != nil {
		return err
	}
	if err := who.Start(); err != nil {
		return err
	}
	defer who.Stop()
	if err := r.ready(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *run) error{proveScaleUp, proveConsolidation, proveInterruption, proveScaleDown, proveCalls} {
		if err := step(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// render gives the demo's NodePool and EC2NodeClass as YAML.
func (c *contender) render(ctx context.Context, cfg Config) ([]byte, error) {
	c.Path = cfg.Coppice
	return c.Output(ctx, "render", filepath.Join(cfg.Examples, "single-cluster"))
}

// apply creates a stream of documents.
func (b *bench) apply(ctx context.Context, text []byte) error {
	docs := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read YAML: %w", err)
		}
		if len(obj.Object) == 0 {
			continue // nothing but a comment
		}
		if err := b.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// demoPods is how many pods the demo's workloads have.
const demoPods = 65

func proveScaleUp(ctx context.Context, r *run) error {
	began := time.Now()
	for _, name := range []string{"scale-up.yaml", "mixed.yaml"} {
		text, err := os.ReadFile(filepath.Join(r.cfg.Examples, "workloads", name))
		if err != nil {
			return fmt.Errorf("read a workload: %w", err)
		}
		if err := r.apply(ctx, text); err != nil {
			return err
		}
	}
	if err := r.running(ctx, demoPods); err != nil {
		return err
	}
	bound := time.Since(began)
	if err := r.initialized(ctx); err != nil {
		return err
	}
	if err := r.matching(ctx); err != nil {
		return err
	}
	st := r.stack.EC2.State()
	r.say("  %d pods run %.1f s after they were asked for, on %d nodes at $%.4f/h", demoPods, bound.Seconds(), st.Instances[ec2sim.StateRunning], float64(st.MicroUSDPerHour)/1e6)
	return nil
}

// running waits until so many pods run and no other is there.
func (r *run) running(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, proofLimit, fmt.Errorf("%s is over", proofLimit))
	defer cancel()
	return await.Objects(ctx, r.client, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		running := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				running++
			}
		}
		return running == n && len(pods) == n, fmt.Sprintf("%d of %d pods run", running, len(pods))
	}, client.InNamespace(namespace))
}

// matching checks that each instance has a NodeClaim with its ID, and the other
// way round.
func (r *run) matching(ctx context.Context) error {
	var claims karpenter.NodeClaimList
	if err := r.client.List(ctx, &claims); err != nil {
		return fmt.Errorf("list NodeClaims: %w", err)
	}
	byID := map[string]string{}
	for _, c := range claims.Items {
		byID[c.Status.ProviderID[strings.LastIndexByte(c.Status.ProviderID, '/')+1:]] = c.Name
	}
	live := 0
	for _, i := range r.stack.EC2.Instances() {
		if i.State != ec2sim.StatePending && i.State != ec2sim.StateRunning {
			continue
		}
		live++
		if byID[i.ID] == "" {
			return fmt.Errorf("instance %s has no NodeClaim", i.ID)
		}
	}
	if live != len(byID) {
		return fmt.Errorf("%d instances for %d NodeClaims", live, len(byID))
	}
	return nil
}

// proveConsolidation removes half of each workload, so that nodes are left half
// empty, and waits until the pods that are left are on fewer nodes.
func proveConsolidation(ctx context.Context, r *run) error {
	var list appsv1.DeploymentList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Deployments: %w", err)
	}
	left := 0
	before := r.stack.EC2.State().Instances[ec2sim.StateRunning]
	for i := range list.Items {
		n := (*list.Items[i].Spec.Replicas + 1) / 2
		left += int(n)
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
		if err := r.client.Patch(ctx, &list.Items[i], patch); err != nil {
			return fmt.Errorf("scale down: %w", err)
		}
	}
	if err := r.running(ctx, left); err != nil {
		return err
	}
	var old corev1.PodList
	if err := r.client.List(ctx, &old, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	uids := map[types.UID]bool{}
	for _, p := range old.Items {
		uids[p.UID] = true
	}
	pool := &karpenter.NodePool{}
	pool.Name = poolName
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"disruption":{"consolidationPolicy":"WhenEmptyOrUnderutilized","consolidateAfter":"0s","budgets":[{"nodes":"100%"}]}}}`))
	if err := r.client.Patch(ctx, pool, patch); err != nil {
		return fmt.Errorf("let nodes be consolidated: %w", err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, proofLimit, fmt.Errorf("%s is over", proofLimit))
	defer cancel()
	moved := 0
	err := await.Objects(limited, r.client, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string) {
		moved = 0
		for _, p := range pods {
			if !uids[p.UID] && p.Status.Phase == corev1.PodRunning {
				moved++
			}
		}
		return moved > 0, fmt.Sprintf("%d pods moved", moved)
	}, client.InNamespace(namespace))
	if err != nil {
		return fmt.Errorf("wait for consolidation: %w", err)
	}
	err = await.Objects(limited, r.client, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string) {
		return len(nodes) < before, fmt.Sprintf("%d nodes, %d before", len(nodes), before)
	}, stack.NotSystem())
	if err != nil {
		return fmt.Errorf("wait for consolidation: %w", err)
	}
	if err := r.running(ctx, left); err != nil {
		return err
	}
	// Until it has come to rest, an interruption would be one event among several.
	if err := r.restful(ctx, 30*time.Second); err != nil {
		return err
	}
	st := r.stack.EC2.State()
	r.say("  %d pods are left: %d nodes became %d, at $%.4f/h", left, before, st.Instances[ec2sim.StateRunning], float64(st.MicroUSDPerHour)/1e6)
	return nil
}

// restful waits until no instance has come or gone for a while.
func (r *run) restful(ctx context.Context, d time.Duration) error {
	var mu sync.Mutex
	last := time.Now()
	stop := r.stack.EC2.Watch(func(ec2sim.Instance) {
		mu.Lock()
		defer mu.Unlock()
		last = time.Now()
	})
	defer stop()
	for end := time.Now().Add(proofLimit); time.Now().Before(end); {
		mu.Lock()
		rest := d - time.Since(last)
		mu.Unlock()
		if rest <= 0 {
			return nil
		}
		if err := r.sleep(ctx, rest); err != nil {
			return err
		}
	}
	return fmt.Errorf("nodes still come and go after %s", proofLimit)
}

// proveInterruption takes a spot instance back and wants it replaced and ended by
// the controller before EC2 would end it.
func proveInterruption(ctx context.Context, r *run) error {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	ids, err := r.stack.EC2.Do(ec2sim.Step{Interrupt: &ec2sim.Victims{Match: ec2sim.Match{CapacityTypes: []string{ec2sim.Spot}}, Count: 1}})
	if err != nil {
		return fmt.Errorf("interrupt an instance: %w", err)
	}
	if len(ids) != 1 {
		return errors.New("there is no spot instance to interrupt")
	}
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, noticeTime+30*time.Second, errors.New("its notice is over"))
	defer cancel()
	err = await.Objects(limited, r.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		for _, c := range claims {
			if strings.HasSuffix(c.Status.ProviderID, "/"+ids[0]) {
				return false, "NodeClaim " + c.Name + " is still there"
			}
		}
		return true, ""
	})
	if err != nil {
		return fmt.Errorf("wait for the end of the interrupted instance: %w", err)
	}
	took := time.Since(began)
	if i, ok := r.stack.EC2.Instance(ids[0]); ok && i.StateReason == "Server.SpotInstanceTermination" {
		return fmt.Errorf("instance %s was left to EC2, which ended it", ids[0])
	}
	if err := r.running(ctx, len(list.Items)); err != nil {
		return err
	}
	r.say("  spot instance %s was interrupted; it was drained and ended %.1f s later, of 120 s, and all %d pods run", ids[0], took.Seconds(), len(list.Items))
	return nil
}

// proveScaleDown deletes the workloads and wants nothing left.
func proveScaleDown(ctx context.Context, r *run) error {
	began := time.Now()
	if err := r.client.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(namespace), client.PropagationPolicy("Background")); err != nil {
		return fmt.Errorf("delete the Deployments: %w", err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, proofLimit, fmt.Errorf("%s is over", proofLimit))
	defer cancel()
	err := await.Objects(limited, r.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		return len(claims) == 0, fmt.Sprintf("%d NodeClaims left", len(claims))
	})
	if err != nil {
		return err
	}
	err = await.Objects(limited, r.client, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string) {
		return len(nodes) == 0, fmt.Sprintf("%d nodes left", len(nodes))
	}, stack.NotSystem())
	if err != nil {
		return err
	}
	if st := r.stack.EC2.State(); st.MicroUSDPerHour != 0 {
		return fmt.Errorf("instances are left: %v", st.Instances)
	}
	r.say("  nothing is left %.1f s after the pods went", time.Since(began).Seconds())
	return nil
}

// expected are answers with an error code that are part of how Karpenter works,
// by their code.
func expected(code string) bool {
	switch code {
	case "DryRunOperation", "InvalidLaunchTemplateName.NotFoundException", "NoSuchEntity", "InvalidInstanceID.NotFound", "RequestLimitExceeded":
		return true
	}
	return false
}

// proveCalls wants no call refused other than those that a real account refuses.
func proveCalls(_ context.Context, r *run) error {
	n, calls, refused := tally(r.stack.EC2.Counters())
	for what := range refused {
		if _, code, _ := strings.Cut(what, " "); !expected(code) {
			return fmt.Errorf("the simulator refused %s", what)
		}
	}
	r.say("  %d calls to EC2, %d actions of all services; none was refused that EC2 would have answered", n, len(calls))
	return nil
}
