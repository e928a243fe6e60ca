package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Cloud is what planning asks of a cloud.
type Cloud interface {
	InstanceTypes(ctx context.Context, class *aws.EC2NodeClass) ([]cloud.InstanceType, error)
}

// Batch bounds how long the planner waits for more pods before it plans.
type Batch struct {
	// Idle is how long no new pod may have come for the batch to be complete.
	Idle time.Duration
	// Max is how long a batch may stay open in all.
	Max time.Duration
}

// idle is Idle doubled for each plan in a row that opened nodes. A single pod, and the
// first of many, don't wait; those that drip in after them are gathered, or each
// handful would get a small node of its own.
func (b Batch) idle(inRow int) time.Duration { return min(b.Idle<<min(inRow, 10), max(b.Idle, b.Max)) }

// row counts the plans in a row that opened nodes.
type row struct {
	plans int
	last  time.Time
}

// lull is how long no node may have been opened for a row to end: longer than Max, so
// that the longest batch doesn't end it.
const lull = 5 * time.Second

func (r row) at(now time.Time) int {
	if now.Sub(r.last) > lull {
		return 0
	}
	return r.plans
}

func (r row) opened(now time.Time) row { return row{r.at(now) + 1, now} }

// DefaultBatch is shorter than Karpenter's 1 s and 10 s: planning is fast enough
// here that a pod which comes late is cheap to plan for again, and it lands on the
// nodes that are already on their way.
var DefaultBatch = Batch{Idle: 200 * time.Millisecond, Max: 2 * time.Second}

const (
	// retry is how soon pods are planned for again whose plan came to nothing, as
	// when a limit was reached or the cloud had no capacity.
	retry = 10 * time.Second
	// follow is how soon the plan is made again while pods with a place wait to be
	// bound. The scheduler may bind others to that place: whoever is left over then
	// needs another node, and nothing else tells. A plan that finds all in order
	// costs well under a millisecond.
	follow = time.Second
	// nominated is how long a node that pods were planned onto is safe from being
	// taken for empty: time enough for it to boot's last step and for the scheduler
	// to bind them. Karpenter's value with its default batch.
	nominated = 20 * time.Second
	// think bounds how long a plan is improved: the first plan is there long before.
	think = 200 * time.Millisecond
)

// Planner is the loop. It runs on the leader alone.
type Planner struct {
	kube   client.Client
	state  *cluster.State
	synced func() bool
	cloud  Cloud
	events events.EventRecorder
	clock  clock.Clock
	batch  Batch
	row    row
	wake   chan struct{} // filled by changes of pools and classes
	model  *cluster.Model
	policy pack.Options // but for Stop
	book   *record.Book
	told   map[string]said // by pod
	// places is where the last plan wants pods, by pod: a Node or a claim.
	places    map[string]string
	nominator *Nominator
	// health holds back pools whose launches fail; held are those of this pass.
	health *health.Tracker
	held   map[string]health.Hold
	// launching are the claims made here that may not have been launched yet.
	launching  map[string]bool
	fleetToken func() string
	metrics    *metrics.Set
}

// NeedLeaderElection keeps a standby from planning.
func (p *Planner) NeedLeaderElection() bool { return true }

// Start plans until ctx ends.
func (p *Planner) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("planner")
	for !p.synced() {
		if !p.sleep(ctx, 20*time.Millisecond) {
			return nil
		}
	}
	for {
		again, err := p.pass(ctx, log)
		if err != nil && ctx.Err() == nil {
			log.Error(err, "plan for pending pods")
			again = retry
		}
		var timer <-chan time.Time
		if again > 0 {
			timer = p.clock.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer:
			continue
		case <-p.state.Changed():
		case <-p.wake:
		}
		if !p.fill(ctx) {
			return nil
		}
	}
}

// fill waits until the batch is complete: nothing new for a while, or Max in all. It
// reports false when ctx has ended.
func (p *Planner) fill(ctx context.Context) bool {
	end := p.clock.After(p.batch.Max)
	idle := p.batch.idle(p.row.at(p.clock.Now()))
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end:
			return true
		case <-p.clock.After(idle):
			return true
		case <-p.state.Changed():
		case <-p.wake:
		}
	}
}

func (p *Planner) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.clock.After(d):
		return true
	}
}

// pass plans once. It says when to plan again although nothing changes, 0 for never.
func (p *Planner) pass(ctx context.Context, log logr.Logger) (again time.Duration, err error) {
	now := p.clock.Now()
	pools, poolErr := p.pools(ctx, now)
	idle := time.Duration(0)
	if p.state.Lapse() {
		idle = cluster.Patience / 3
	}
	if err := p.model.Sync(p.state, pools); err != nil {
		return retry, errors.Join(poolErr, err)
	}
	for key, why := range p.model.Refused() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		p.events.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Plan", "%s", why.Error())
	}
	p.metrics.IgnoredPods.WithLabelValues().Set(float64(len(p.model.Refused())))
	p.metrics.QueueDepth.WithLabelValues("provisioner").Set(float64(p.model.Pending()))
	if p.model.Pending() == 0 {
		p.metrics.UnschedulablePods.WithLabelValues("provisioner").Set(0)
		clear(p.told)
		clear(p.places)
		p.state.SetPlan(p.model, p.places)
		return idle, errors.Join(poolErr, p.cancel(ctx))
	}
	began := p.clock.Now()
	o := p.policy
	o.Stop = func() bool { return p.clock.Since(began) > think }
	plan := p.model.Plan(o)
	p.metrics.SchedulingDuration.WithLabelValues("provisioner").Observe(p.clock.Since(began).Seconds())
	p.metrics.UnschedulablePods.WithLabelValues("provisioner").Set(float64(len(plan.Unschedulable)))
	if len(plan.NewNodes) > 0 {
		p.row = p.row.opened(began)
		log.Info("planned", "pods", p.model.Pending(), "newNodes", len(plan.NewNodes), "onExisting", len(plan.Assignments),
			"unschedulable", len(plan.Unschedulable), "usdPerHour", float64(plan.MicroUSD)/1e6, "took", p.clock.Since(began).String())
	}
	clear(p.places)
	for _, a := range plan.Assignments {
		p.places[a.Pod] = a.Node
		p.state.Nominate(a.Node, p.clock.Now().Add(nominated))
	}
	withheld := p.probe(plan)
	createErr := p.create(ctx, pools, plan.NewNodes)
	p.state.SetPlan(p.model, p.places)
	createErr = errors.Join(createErr, p.nominate(ctx), p.cancel(ctx))
	p.tell(plan.Unschedulable, began)
	p.note(plan, began)
	again = retry
	if len(plan.NewNodes) > 0 || len(plan.Assignments) > 0 {
		again = follow
	}
	if withheld {
		again = p.batch.Idle // the others' pods go elsewhere while the probe is under way
	}
	for _, h := range p.held {
		if wait := h.Until.Sub(now); h.Probing == "" && wait > 0 && wait < again {
			again = wait
		}
	}
	return again, errors.Join(poolErr, createErr)
}

// said is what a pod was told and when.
type said struct {
	why string
	at  time.Time
}

// repeat is how soon a pod is told again why it has no place: an event lasts an hour.
const repeat = 5 * time.Minute

// tell says why pods have no place, to each when the reason is new.
func (p *Planner) tell(pods []pack.Unschedulable, now time.Time) {
	for _, u := range pods {
		pod := p.model.Pod(u.Pod)
		if pod == nil {
			continue
		}
		why := p.explain(u)
		if last := p.told[u.Pod]; last.why == why && now.Sub(last.at) < repeat {
			continue
		}
		p.told[u.Pod] = said{why, now}
		p.events.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Plan", "%s", why)
	}
}

// pools returns the NodePools that nodes may be opened from and that haven't failed to
// bring any up lately.
func (p *Planner) pools(ctx context.Context, now time.Time) ([]cluster.Pool, error) {
	all, err := Pools(ctx, p.kube, p.cloud)
	clear(p.held)
	return slices.DeleteFunc(all, func(np cluster.Pool) bool {
		h := holdOf(p.health, p.state, np.NodePool, now)
		if h.Failures > 0 {
			p.held[np.Name] = h
		}
		return h.Closed(now)
	}), err
}

// Pools returns the NodePools that nodes may be opened from. A class whose types
// can't be listed costs its pools this pass, not the others theirs.
func Pools(ctx context.Context, kube client.Reader, c Cloud) ([]cluster.Pool, error) {
	var list karpenter.NodePoolList
	if err := kube.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list NodePools: %w", err)
	}
	var errs []error
	var out []cluster.Pool
	for i := range list.Items {
		np := &list.Items[i]
		if np.DeletionTimestamp != nil || np.IsStatic() || !apimeta.IsStatusConditionTrue(np.Status.Conditions, karpenter.ConditionReady) {
			continue
		}
		var class aws.EC2NodeClass
		if err := kube.Get(ctx, client.ObjectKey{Name: np.Spec.Template.Spec.NodeClassRef.Name}, &class); err != nil {
			errs = append(errs, fmt.Errorf("NodePool %s: %w", np.Name, err))
			continue
		}
		types, err := c.InstanceTypes(ctx, &class)
		if err != nil {
			errs = append(errs, fmt.Errorf("NodePool %s: list instance types: %w", np.Name, err))
			continue
		}
		out = append(out, cluster.Pool{NodePool: np, Class: &class, Types: types})
	}
	return out, errors.Join(errs...)
}

// create makes the claims of a plan, several at once: each is a round trip of its
// own and pods wait for them.
func (p *Planner) create(ctx context.Context, pools []cluster.Pool, nodes []pack.NewNode) error {
	byName := map[string]cluster.Pool{}
	for _, q := range pools {
		byName[q.Name] = q
	}
	marks, order := join(nodes, p.fleetToken)
	claims := make([]string, len(nodes))
	errs := kube.Each(len(nodes), func(n int) (err error) {
		i := order[n]
		claims[i], err = p.createOne(ctx, byName[nodes[i].Pool], &nodes[i], marks[i])
		return err
	})
	for i, n := range nodes {
		for _, pod := range n.Pods {
			if claims[i] != "" {
				p.places[pod] = claims[i]
			}
		}
		if claims[i] != "" {
			p.launching[claims[i]] = true
		}
	}
	return errors.Join(errs...)
}

func (p *Planner) createOne(ctx context.Context, pool cluster.Pool, node *pack.NewNode, mark string) (name string, err error) {
	claim := NewClaim(pool.NodePool, pool.Class, node)
	if mark != "" {
		claim.Annotations[coppice.AnnotationFleet] = mark
	}
	if err := p.kube.Create(ctx, claim); err != nil {
		return "", fmt.Errorf("create NodeClaim for NodePool %s: %w", pool.Name, err)
	}
	p.metrics.NodeClaimsCreated.WithLabelValues("provisioned", pool.Name, strconv.FormatBool(node.Relaxed)).Inc()
	p.state.Expect(claim.DeepCopy())
	if p.held[pool.Name].Failures > 0 {
		p.health.Probe(pool.Name, claim.Name)
	}
	p.state.Nominate(claim.Name, p.clock.Now().Add(nominated))
	for _, name := range node.Pods {
		if pod := p.model.Pod(name); pod != nil && pod.Spec.NodeName == "" {
			p.events.Eventf(pod, claim, corev1.EventTypeNormal, "Nominated", "Plan", "Pod should schedule on: nodeclaim/%s", claim.Name)
		}
	}
	return claim.Name, nil
}

// explain says why a pod has no place, and which pools might have had one.
func (p *Planner) explain(u pack.Unschedulable) string {
	var parts []string
	for _, r := range u.Reasons {
		parts = append(parts, cluster.Explain(r))
	}
	for _, name := range slices.Sorted(maps.Keys(p.held)) {
		parts = append(parts, fmt.Sprintf("NodePool %q: held back, its last launch failed: %s", name, p.held[name].Why))
	}
	return kube.ClipNote(strings.Join(parts, "; "))
}
