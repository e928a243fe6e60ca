// Package source keeps a cluster and a Git repository in step, one NodeSource at
// a time: it takes the commit that a ref names, makes the cluster hold what the
// commit declares, and reports to Git what in the cluster isn't as declared.
//
// One pass over a source reads like this, each line a step of its own:
//
//	change    connect → resolve → evaluate → descend → dependencies → guard → preview → record → apply → prune → rollout
//	drift     observe → compare → (correct) → survey
//	report    write the report to a branch, or take it away
//	adopt     propose in a pull request that Git say what is live, if that is asked for
//	settle    conditions, status and the time of the next pass, in one patch
//
// The first four don't depend on each other: a commit that is refused leaves
// what is live untouched and still has it checked for drift, and a repository
// that can't be reached doesn't hide that somebody edits the cluster.
//
// A pass that finds nothing new writes nothing: no status, no event, no commit.
// Memory of earlier passes only saves work; losing it costs a fetch and some
// reads and changes no outcome.
package source

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/aws"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Evaluate makes objects of a CUE tree. Its findings say what is wrong with the
// tree; its error says that it couldn't be evaluated at all, for now.
type Evaluate func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error)

// Options configure the controller. The zero value works.
type Options struct {
	// ClusterName is this cluster's, for reports of a source that names none.
	ClusterName string
	// Evaluate evaluates trees; nil means in this process.
	Evaluate Evaluate
	// Clock tells the time; nil means the system's.
	Clock clock.PassiveClock
	// Jitter returns numbers in [0,1) that keep sources from polling in step and
	// writers from pushing in step; nil means none.
	Jitter func() float64
	// As makes a client that acts as a ServiceAccount; nil means by impersonation.
	As func(namespace, name string) (client.Client, error)
	// Concurrency is how many sources are worked on at the same time,
	// DefaultConcurrency if zero.
	Concurrency int
	// EventsAddress is the URL of Flux's notification-controller, which events are posted
	// to; "" for none.
	EventsAddress string
	// WebhookAddress is the host:port where forges may tell of a push; "" for none.
	WebhookAddress string
}

// DefaultConcurrency lets three slow repositories not hold up a fourth.
const DefaultConcurrency = 4

// Reconciler reconciles NodeSources.
type Reconciler struct {
	client client.Client
	// reader reads from the API server: the source itself, because a status that
	// is older than the last one written would undo it, and Secrets, because a
	// cache of them would hold all of the cluster's.
	reader   client.Reader
	applier  *kube.Applier
	as       *identities
	evaluate Evaluate
	clock    clock.PassiveClock
	jitter   func() float64
	cluster  string
	forge    forge.Client
	notify   *notifier
	memories *memories
	tokens   *tokens
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.As == nil {
		opts.As = impersonate(mgr)
	}
	r, err := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), opts)
	if err != nil {
		return err
	}
	if opts.WebhookAddress != "" {
		if err := serveHooks(mgr, opts.WebhookAddress, r.clock); err != nil {
			return err
		}
	}
	if opts.EventsAddress != "" {
		r.notify = newNotifier(opts.EventsAddress)
		if err := mgr.Add(r.notify); err != nil {
			return fmt.Errorf("pass events on: %w", err)
		}
	}
	workers := opts.Concurrency
	if workers == 0 {
		workers = DefaultConcurrency
	}
	// What a source applied is watched by its metadata alone, which is enough to
	// see that it changed.
	applied := handler.EnqueueRequestsFromMapFunc(r.sourcesOf)
	return r.watchArtifacts(mgr, ctrl.NewControllerManagedBy(mgr)).
		Named("source").
		For(&coppice.NodeSource{}, builder.WithPredicates(asked())).
		WatchesMetadata(&karpenter.NodePool{}, applied, builder.WithPredicates(touched())).
		WatchesMetadata(&aws.EC2NodeClass{}, applied, builder.WithPredicates(touched())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

func newReconciler(c client.Client, reader client.Reader, opts Options) (*Reconciler, error) {
	r := &Reconciler{
		client: c, reader: reader, applier: kube.NewApplier(c),
		evaluate: opts.Evaluate, clock: opts.Clock, jitter: opts.Jitter,
		cluster: opts.ClusterName, memories: newMemories(), tokens: &tokens{}, as: &identities{as: opts.As},
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	r.forge.Now = r.clock.Now
	if r.jitter == nil {
		r.jitter = func() float64 { return 0.5 }
	}
	if r.evaluate == nil {
		evaluate, err := inProcess()
		if err != nil {
			return nil, err
		}
		r.evaluate = evaluate
	}
	return r, nil
}

// inProcess evaluates trees in this process, which can't be told to stop.
func inProcess() (Evaluate, error) {
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return nil, fmt.Errorf("compile CRDs: %w", err)
	}
	return func(_ context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		bundle, findings := render.Check(tree, cluster, judge)
		return bundle, findings, nil
	}, nil
}

// Reconcile makes one pass over a source.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	src := &coppice.NodeSource{}
	if err := r.reader.Get(ctx, req.NamespacedName, src); err != nil {
		if apierrors.IsNotFound(err) {
			r.memories.forget(req.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read source: %w", err)
	}
	if src.DeletionTimestamp != nil {
		// What was applied stays: to take every node away needs more than the loss
		// of one object.
		r.memories.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}

	p := r.newPass(src)
	if !src.Spec.Suspend {
		var err error
		if p.applier, err = r.as.of(src, r.applier); err != nil {
			p.result.change, p.result.drift = err, err
		} else {
			p.result.change = p.change(ctx)
			p.result.drift = p.drift(ctx)
		}
		p.result.report = p.report(ctx)
		p.result.adopt = p.adopt(ctx)
	}
	p.hush()
	now := r.clock.Now()
	poll := p.memory.nextPoll.Sub(now)
	if poll <= 0 {
		// The repository couldn't be asked.
		poll = p.interval()
	}
	decision := settle(p.src, p.result, p.memory.failures, poll, now)
	p.src.Status, p.memory.failures = decision.status, decision.failures
	// Told first and noted after, so that nothing noted was left untold.
	p.announce(ctx)
	changed, err := kube.PatchStatus(ctx, r.client, p.read, p.src)
	if err != nil {
		// The next pass shall come to the same conclusions and write them.
		p.memory.done, p.memory.reported, p.memory.adoption = attempt{}, "", adoption{}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	p.log(ctx, changed)
	return ctrl.Result{RequeueAfter: decision.requeue}, nil
}

// timeout bounds one step that waits for others.
func (p *pass) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	d := p.src.Spec.Timeout.Duration
	if d <= 0 {
		d = defaultTimeout
	}
	return context.WithTimeout(ctx, d)
}

// defaultTimeout and defaultInterval are the API's own defaults, for objects
// that were stored before it had them.
const (
	defaultTimeout  = time.Minute
	defaultInterval = time.Minute
)
