package disrupt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

const (
	// poll is the longest time between two looks at the cluster, busy that while
	// commands are under way. A look costs one pass over the nodes in memory and no
	// call.
	poll = 2 * time.Second
	busy = 250 * time.Millisecond
)

// Gates are Karpenter's feature gates that concern disruption.
type Gates struct {
	// SpotToSpot is SpotToSpotConsolidation.
	SpotToSpot bool
	NodeRepair bool
}

// loop looks for nodes to take away. It runs on the leader alone.
type loop struct {
	kube    client.Client
	live    client.Reader // past the cache
	cloud   Cloud
	state   *cluster.State
	model   *cluster.Model
	synced  func() bool
	events  events.EventRecorder
	clock   clock.Clock
	book    *record.Book
	metrics *metrics
	gates   Gates
	policy  pack.Options

	// What has failed is forgotten with a restart, which is a chance to try again.
	rollouts map[string]Rollout
	misses   map[string]int
	failed   map[string]time.Time
	told     map[string]told
	proofs   []*proof
	// began is when the first pass was.
	began time.Time
	// paused says of each pool that is paused until when, by whom and why.
	paused map[string]string
	// warned are the pools that were told that nothing is repaired.
	warned map[string]bool
	pace   pace
}

// NeedLeaderElection keeps a standby from disrupting.
func (l *loop) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (l *loop) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("disrupt")
	ctx = ctrl.LoggerInto(ctx, log)
	for {
		wait := poll
		if l.synced() {
			next, err := l.pass(ctx)
			if err != nil && ctx.Err() == nil {
				log.Error(err, "disrupt nodes")
			}
			wait = next
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.clock.After(wait):
		}
	}
}

// pass takes the commands under way further, decides on new ones and begins with them.
// It says when to look again.
func (l *loop) pass(ctx context.Context) (time.Duration, error) {
	nodes := l.state.Snapshot().Nodes
	byClaim := byClaimName(nodes)
	declared, err := l.declared(ctx)
	if err != nil {
		return poll, err
	}
	l.pauses(declared)
	l.warn(declared)
	l.recall(nodes, declared)
	l.prove(byClaim, declared)
	away, shiftErr := l.cloud.Shifted(ctx) // as good as none until it can be asked
	commands := underWay(nodes)
	errs := []error{shiftErr, l.strip(ctx, nodes)}
	for _, c := range commands {
		errs = append(errs, l.proceed(ctx, c, byClaim, declared, away))
	}
	in, pools, poolErr, err := l.input(ctx, declared, away)
	errs = append(errs, poolErr)
	if err != nil {
		return poll, errors.Join(append(errs, err)...)
	}
	began := l.clock.Now()
	d := Decide(in)
	took := l.clock.Since(began)
	l.pace.note(d, l.clock.Now(), took)
	l.report(ctx, d, in, took)

	named := byClaimName(in.Nodes)
	errs = append(errs, l.begin(ctx, d.Start, named, pools), l.reboot(ctx, d.Reboot, named))
	wait := poll
	if len(commands)+len(d.Start) > 0 || !in.Quiet {
		wait = busy
	}
	if !d.Next.IsZero() {
		wait = min(wait, max(d.Next.Sub(l.clock.Now()), 10*time.Millisecond))
	}
	return wait, errors.Join(errs...)
}

// declared reads the pools.
func (l *loop) declared(ctx context.Context) (map[string]Pool, error) {
	var list karpenter.NodePoolList
	if err := l.kube.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list NodePools: %w", err)
	}
	out := map[string]Pool{}
	for i := range list.Items {
		p := NewPool(&list.Items[i])
		if p.Options.DriftApproval != "" {
			class := &aws.EC2NodeClass{}
			if err := l.kube.Get(ctx, client.ObjectKey{Name: p.Spec.Template.Spec.NodeClassRef.Name}, class); apierrors.IsNotFound(err) {
				class = nil // as where the pool's condition names the target
			} else if err != nil {
				return nil, fmt.Errorf("get EC2NodeClass %s: %w", p.Spec.Template.Spec.NodeClassRef.Name, err)
			}
			p.Target = cluster.Target(p.NodePool, class)
		}
		out[p.Name] = p
	}
	return out, nil
}

// pauses tells when a pool's pause begins and ends.
func (l *loop) pauses(pools map[string]Pool) {
	l.metrics.paused.Reset()
	fresh := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		p := pools[name]
		until, paused := p.Options.PausedUntil(l.clock.Now())
		if paused {
			fresh[name] = p.Options.Pause.String()
			l.metrics.paused.WithLabelValues(name).Set(float64(until.Unix()))
		}
		switch had, before := l.paused[name]; {
		case paused && had != fresh[name]:
			l.events.Eventf(p.NodePool, nil, corev1.EventTypeNormal, "DisruptionPaused", "Pause", "No node is taken away voluntarily %s", kube.OneLine(fresh[name]))
		case before && !paused:
			l.events.Eventf(p.NodePool, nil, corev1.EventTypeNormal, "DisruptionResumed", "Pause", "Nodes may be taken away again")
		}
	}
	l.paused = fresh
}

// input gathers what a decision depends on. A class whose types can't be listed, which
// poolErr tells, costs its pools their replacements in this pass, and nothing else.
func (l *loop) input(ctx context.Context, declared map[string]Pool, away map[string]bool) (in Input, pools map[string]cluster.Pool, poolErr, err error) {
	var pdbs policyv1.PodDisruptionBudgetList
	if err := l.kube.List(ctx, &pdbs); err != nil {
		return Input{}, nil, nil, fmt.Errorf("list PodDisruptionBudgets: %w", err)
	}
	open, poolErr := provision.Pools(ctx, l.kube, l.cloud)
	if err := l.model.Sync(l.state, open); err != nil {
		return Input{}, nil, poolErr, err
	}
	now, shot := l.clock.Now(), l.state.Snapshot()
	in = Input{
		Now: now, Nodes: shot.Nodes, Pools: declared, Guards: NewGuards(pdbs.Items), Core: l.model.Core(), Policy: l.policy,
		Rollouts: l.rollouts, Unsure: unsure(l.proofs), Away: away, Failed: l.failed, SpotToSpot: l.gates.SpotToSpot, NodeRepair: l.gates.NodeRepair,
	}
	l.pace.look(&in, shot.Unbound)
	byName := map[string]cluster.Pool{}
	for _, p := range open {
		byName[p.Name] = p
	}
	return in, byName, poolErr, nil
}

// strip takes the taint from nodes that no command takes away: what a crash left, or
// what was begun by a controller before this one.
func (l *loop) strip(ctx context.Context, nodes []cluster.Node) error {
	var errs []error
	for _, n := range nodes {
		if n.Claim == nil || n.Node == nil || n.Deleting() || !cluster.HasTaint(n.Node, karpenter.DisruptedTaint()) {
			continue
		}
		if _, ok := commandOf(n); !ok {
			errs = append(errs, l.unmark(ctx, n))
		}
	}
	return errors.Join(errs...)
}
