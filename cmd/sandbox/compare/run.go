package compare

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/meter"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/await"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Result is one run of a scenario with one controller.
type Result struct {
	Scenario   string `json:"scenario"`
	Controller string `json:"controller"`
	Round      int    `json:"round"`

	// BoundSeconds passed from the first request to create pods until all were
	// bound; Unbound pods were not, within the limit or at the end.
	BoundSeconds float64 `json:"boundSeconds"`
	Unbound      int     `json:"unbound"`
	// Nodes, their price, and what a price may not fall below, at the end.
	Nodes      int     `json:"nodes"`
	USDPerHour float64 `json:"usdPerHour"`
	LowerBound float64 `json:"lowerBoundUSDPerHour"`
	// USD was spent in the measured window of so many seconds, up to whose second
	// SettledSeconds instances came or went.
	USD            float64 `json:"usd"`
	WindowSeconds  float64 `json:"windowSeconds"`
	SettledSeconds float64 `json:"settledSeconds"`
	// Moved is how many pods were created anew after the scale-down.
	Moved int `json:"podsMoved"`
	// EC2Calls are those to EC2 alone, Calls those to every service by action,
	// Refused those answered with an error by action and code; all in the window.
	EC2Calls int            `json:"ec2Calls"`
	Calls    map[string]int `json:"calls"`
	Refused  map[string]int `json:"refused"`
	// CPUSeconds is the controller's processor time in the window, PeakMiB the
	// most memory that it had resident since its start.
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	// StartCPUSeconds and StartEC2Calls came before the window.
	StartCPUSeconds float64 `json:"startCPUSeconds"`
	StartEC2Calls   int     `json:"startEC2Calls"`
	// OtherLoad is the share of the machine that others used in the window, and
	// Disturbed says that it was more than the scenario bears.
	OtherLoad float64 `json:"otherLoad"`
	Disturbed bool    `json:"disturbed"`
}

// run is a run while it lasts.
type run struct {
	*bench
	who    *contender
	sc     scenario
	pods   []deployment
	empty  map[offering]bool
	result Result

	// stop ends what runs beside.
	stop context.CancelFunc
	// What the window began with.
	from  meter.Reading
	spent int64

	mu sync.Mutex
	// last is when an instance last came or began to go.
	last time.Time
	// seen are the pods that there have been since the window began.
	seen    map[types.UID]bool
	present int
}

// from lets a watch begin where a list ended.
func from(resourceVersion string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: resourceVersion}
}

// startLimit bounds how long a controller may take until its pool is ready.
const startLimit = 2 * time.Minute

// play runs the scenario once and returns what was measured.
func (r *run) play(ctx context.Context) (err error) {
	if err := r.sweep(ctx); err != nil {
		return err
	}
	pool, err := r.sc.pool.nodePool()
	if err != nil {
		return err
	}
	class, err := nodeClass()
	if err != nil {
		return err
	}
	for _, obj := range []client.Object{class, pool} {
		if err := r.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create %s: %w", obj.GetName(), err)
		}
	}
	if err := r.who.Start(); err != nil {
		return err
	}
	defer r.who.Stop()
	defer func() { r.stop() }()
	if err := r.ready(ctx); err != nil {
		return err
	}
	stop := r.stack.EC2.Watch(func(i ec2sim.Instance) {
		if i.State == ec2sim.StatePending || i.State == ec2sim.StateShuttingDown {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.last = time.Now()
		}
	})
	defer stop()
	if r.from, err = meter.Read(r.who.PID()); err != nil {
		return err
	}
	r.result.StartCPUSeconds = r.from.Own.Seconds()
	r.result.StartEC2Calls, _, _ = tally(r.stack.EC2.Counters())
	if err := r.restart(); err != nil {
		return err
	}
	if err := r.sc.run(ctx, r); err != nil {
		return err
	}
	return r.finish(ctx)
}

// ready waits until the pool can be used and the controller has made its first
// calls.
func (r *run) ready(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("%s is over", startLimit))
	defer cancel()
	err := await.Object(limited, r.client, &karpenter.NodePoolList{}, types.NamespacedName{Name: poolName}, func(p *karpenter.NodePool) (bool, string) {
		if p == nil {
			return false, "no NodePool"
		}
		return meta.IsStatusConditionTrue(p.Status.Conditions, karpenter.ConditionReady), fmt.Sprint(p.Status.Conditions)
	})
	if err != nil {
		return fmt.Errorf("wait until the NodePool is ready: %w", err)
	}
	const still = 3 * time.Second
	before, _, _ := tally(r.stack.EC2.Counters())
	for range 20 {
		if err := r.sleep(ctx, still); err != nil {
			return err
		}
		now, _, _ := tally(r.stack.EC2.Counters())
		if now == before {
			return nil
		}
		before = now
	}
	return nil // it never rests; what it does is measured
}

// restart begins the window.
func (r *run) restart() error {
	r.stack.EC2.ResetCounters()
	r.spent = r.stack.EC2.State().SpentMicroUSD
	var err error
	r.from, err = meter.Read(r.who.PID())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = r.from.At
	return err
}

// counts is how many pods each deployment has.
func (r *run) counts() []int { return r.remaining(1) }

func (r *run) remaining(share float64) []int {
	out := make([]int, len(r.pods))
	for i, d := range r.pods {
		out[i] = d.share(share)
	}
	return out
}

func total(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// create creates the deployments and waits until their pods are bound.
func (r *run) create(ctx context.Context) error {
	// What is there before doesn't count in the window.
	if err := r.restart(); err != nil {
		return err
	}
	began := time.Now()
	for _, d := range r.pods {
		if d.budget {
			if err := r.client.Create(ctx, d.disruptionBudget()); err != nil {
				return fmt.Errorf("create a PodDisruptionBudget: %w", err)
			}
		}
	}
	for _, d := range r.pods {
		if err := r.client.Create(ctx, d.object()); err != nil {
			return fmt.Errorf("create a Deployment: %w", err)
		}
	}
	n := total(r.counts())
	limited, cancel := context.WithTimeoutCause(ctx, bindLimit, fmt.Errorf("%s is over", bindLimit))
	defer cancel()
	// A count that is kept up to date, as a look at all pods with each change of
	// one takes time from whom it is to measure.
	bound := map[types.UID]bool{}
	err := r.watchPods(limited, func(p *corev1.Pod, gone bool) bool {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !gone {
			bound[p.UID] = true
		} else {
			delete(bound, p.UID)
		}
		return len(bound) == n
	})
	r.result.BoundSeconds = time.Since(began).Seconds()
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil // the count of unbound pods tells
	}
	return err
}

// watchPods calls fn for each pod and each change of one, until it returns true.
func (r *run) watchPods(ctx context.Context, fn func(p *corev1.Pod, gone bool) bool) error {
	for {
		var list corev1.PodList
		if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			if fn(&list.Items[i], false) {
				return nil
			}
		}
		w, err := r.client.Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace), &client.ListOptions{Raw: from(list.ResourceVersion)})
		if err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if ok && fn(p, e.Type == "DELETED") {
				w.Stop()
				return nil
			}
		}
		w.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// initialized waits until every NodeClaim is, or goes on after a while.
func (r *run) initialized(ctx context.Context) error {
	const limit = time.Minute
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := await.Objects(limited, r.client, &karpenter.NodeClaimList{}, func(claims []*karpenter.NodeClaim) (bool, string) {
		for _, c := range claims {
			if !meta.IsStatusConditionTrue(c.Status.Conditions, karpenter.ConditionInitialized) {
				return false, c.Name
			}
		}
		return true, ""
	})
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil
	}
	return err
}

// deletionCost makes a ReplicaSet delete some pods before others.
const deletionCost = "controller.kubernetes.io/pod-deletion-cost"

// choose marks the pods that are to go when so many of each deployment are left:
// a random choice, the same in each run as far as pods can be told apart.
func (r *run) choose(ctx context.Context, counts []int) error {
	rng := rand.New(rand.NewPCG(6, 60))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+deletionCost+`":"-1"}}}`))
	var work []func() error
	for i, d := range r.pods {
		var list corev1.PodList
		if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": d.name}); err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		// By node, so that the same placement loses the same pods.
		slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
			if c := strings.Compare(a.Spec.NodeName, b.Spec.NodeName); c != 0 {
				return c
			}
			return strings.Compare(a.Name, b.Name)
		})
		order := rng.Perm(len(list.Items))
		for _, at := range order[:max(0, len(order)-counts[i])] {
			pod := &list.Items[at]
			work = append(work, func() error { return r.client.Patch(ctx, pod, patch) })
		}
	}
	return inParallel(work)
}

// shrink scales the deployments down and lets nodes be consolidated from then on.
func (r *run) shrink(ctx context.Context, counts []int, after string) error {
	r.seen = map[types.UID]bool{}
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	r.present = len(list.Items)
	watching, stop := context.WithCancel(ctx)
	r.stop = stop
	go func() {
		// It ends with the run; a watch that breaks begins anew by itself.
		_ = r.watchPods(watching, func(p *corev1.Pod, _ bool) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[p.UID] = true
			return false
		})
	}()

	var work []func() error
	for i, d := range r.pods {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, counts[i]))
		obj := d.object()
		work = append(work, func() error { return r.client.Patch(ctx, obj, patch) })
	}
	if err := inParallel(work); err != nil {
		return fmt.Errorf("scale down: %w", err)
	}
	pool := &karpenter.NodePool{}
	pool.Name = poolName
	patch := fmt.Appendf(nil, `{"spec":{"disruption":{"consolidationPolicy":"WhenEmptyOrUnderutilized","consolidateAfter":%q}}}`, after)
	if err := r.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("let nodes be consolidated: %w", err)
	}
	return nil
}

// finish ends the window and fills in the result.
func (r *run) finish(ctx context.Context) error {
	to, err := meter.Read(r.who.PID())
	if err != nil {
		return err
	}
	state := r.stack.EC2.State()
	res := &r.result
	res.CPUSeconds = (to.Own - r.from.Own).Seconds()
	res.WindowSeconds = to.At.Sub(r.from.At).Seconds()
	res.USD = float64(state.SpentMicroUSD-r.spent) / 1e6
	res.USDPerHour = float64(state.MicroUSDPerHour) / 1e6
	res.Nodes = state.Instances[ec2sim.StatePending] + state.Instances[ec2sim.StateRunning]
	res.EC2Calls, res.Calls, res.Refused = tally(r.stack.EC2.Counters())
	res.OtherLoad = meter.OtherLoad(r.from, to)
	res.Disturbed = res.OtherLoad > r.sc.quiet
	if _, res.PeakMiB, err = meter.Memory(r.who.PID()); err != nil {
		return err
	}
	r.mu.Lock()
	res.SettledSeconds = r.last.Sub(r.from.At).Seconds()
	if r.seen != nil {
		res.Moved = len(r.seen) - r.present
	}
	r.mu.Unlock()
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			res.Unbound++
		}
	}
	return nil
}

// tally sums up calls: those to EC2, all by action, and the refused ones.
func tally(all []ec2sim.Calls) (ec2 int, calls, refused map[string]int) {
	calls, refused = map[string]int{}, map[string]int{}
	for _, c := range all {
		calls[c.Action] += c.Calls
		if strings.HasPrefix(c.Action, "ec2:") {
			ec2 += c.Calls
		}
		for code, n := range c.Errors {
			refused[c.Action+" "+code] += n
		}
	}
	return ec2, calls, refused
}

// poolAndClass reads the pool and its class, which a controller has resolved.
func (r *run) poolAndClass(ctx context.Context) (*karpenter.NodePool, *aws.EC2NodeClass, error) {
	pool, class := &karpenter.NodePool{}, &aws.EC2NodeClass{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: poolName}, pool); err != nil {
		return nil, nil, fmt.Errorf("read the NodePool: %w", err)
	}
	if err := r.client.Get(ctx, types.NamespacedName{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class); err != nil {
		return nil, nil, fmt.Errorf("read the EC2NodeClass: %w", err)
	}
	return pool, class, nil
}

// sleep waits, unless the run ends before.
func (r *run) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inParallel does all of the work, eight at a time.
func inParallel(work []func() error) error {
	const workers = 8
	errs := make([]error, len(work))
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := w; i < len(work); i += workers {
				errs[i] = work[i]()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
