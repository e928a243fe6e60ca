// Package pullrequest says in pull requests what they would do to this cluster, and
// after the merge what became of it.
//
// One pass over a NodeSource asks its forge for the open pull requests that go into the
// branch that the source reads. One that has a new head, or whose base or cluster has
// changed, is reviewed:
//
//	fetch head, base and what both have → merge → evaluate → plan → comment and status
//
// A pull request is judged as what the branch would be after the merge. Its CUE is
// evaluated by who evaluates sources, in a bounded child. One from a fork is compared
// with the branch alone: nothing of the cluster is told to people who may have no right
// to it.
//
// How far a pull request has come is written in the hidden marker of its comment, so
// that a controller that starts anew goes on where the last one ended. What can't be
// said is told in an event of the source; nothing else is written to the cluster.
package pullrequest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/forge"
	"github.com/coppice-dev/coppice/internal/git"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/reconcile/source"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
	"github.com/coppice-dev/coppice/schemas/coppice"
)

// Options configure the controller.
type Options struct {
	// ClusterName is this cluster's, which tells its comments from other clusters'.
	ClusterName string
	// Evaluate evaluates trees; nil means in this process.
	Evaluate source.Evaluate
	// Clock tells the time; nil means the system's.
	Clock clock.PassiveClock
	// Jitter returns numbers in [0,1) that keep sources from polling in step; nil means
	// none.
	Jitter func() float64
	// Controller tells what this controller works with, which forecasts count with; nil
	// if it has no engine.
	Controller snapshot.Tell
	// EngineOff says that another engine manages the nodes.
	EngineOff bool
	// Client sends requests to forges.
	Client forge.Client
}

// Reconciler speaks in pull requests, one NodeSource at a time.
type Reconciler struct {
	Options
	// reader reads from the API server: a cache of Secrets would hold all of the
	// cluster's.
	reader client.Reader
	judge  *admission.Judge
	events events.EventRecorder

	mu       sync.Mutex
	memories map[types.NamespacedName]*memory
}

// memory is what a process knows of a source's pull requests. Losing it costs reviews
// that come to what is said already.
type memory struct {
	// config is what forge was made of.
	config string
	forge  forge.Forge
	// asked is what the last pass was about, next when the interval is over, and limited
	// when the forge may be asked again.
	asked         string
	next, limited time.Time
	// failure is what was told last.
	failure string
	pulls   map[int]*pullMemory
}

type pullMemory struct {
	comment forge.Memory
	// key names all that the last review rested on, at is when it was.
	key string
	at  time.Time
	// touches are the objects that it changed then, beside what was said of others that
	// change the same, draft what this pass has found out and not said yet.
	touches []plan.ID
	beside  []string
	draft   *draft
	// merged is the pull request after its merge, which changes no more.
	merged *forge.Pull
	// settled is set when nodes were as declared at the last look, done when there is
	// nothing more to say.
	settled, done bool
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, opts Options) error {
	r, err := newReconciler(mgr.GetAPIReader(), opts)
	if err != nil {
		return err
	}
	r.events = mgr.GetEventRecorder("coppice")
	return ctrl.NewControllerManagedBy(mgr).Named("pullrequest").For(&coppice.NodeSource{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: source.DefaultConcurrency}).Complete(r)
}

func newReconciler(reader client.Reader, opts Options) (*Reconciler, error) {
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return nil, fmt.Errorf("compile CRDs: %w", err)
	}
	r := &Reconciler{Options: opts, reader: reader, judge: judge, memories: map[types.NamespacedName]*memory{}}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	if r.Evaluate == nil {
		r.Evaluate = func(_ context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
			bundle, findings := render.Check(tree, cluster, judge)
			return bundle, findings, nil
		}
	}
	if r.Client.Now == nil {
		r.Client.Now = r.Clock.Now
	}
	if r.Jitter == nil {
		r.Jitter = func() float64 { return 0.5 }
	}
	return r, nil
}

const (
	// defaultInterval is the API's own default.
	defaultInterval = time.Minute
	// relook is how long a review is taken for what is still so, if nothing that it rests
	// on is seen to change: a comment may have been deleted, a node come.
	relook = 10 * time.Minute
	// follow is how long after its last change a merged pull request is still looked at.
	follow = 7 * 24 * time.Hour
)

// Reconcile makes one pass over the pull requests of a source.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	src := &coppice.NodeSource{}
	if err := r.reader.Get(ctx, req.NamespacedName, src); err != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if src.DeletionTimestamp != nil || src.Spec.PullRequests == nil || src.Spec.Suspend {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	m := r.memory(req.NamespacedName)
	now := r.Clock.Now()
	// A new commit, a new spec and somebody's wish don't wait for the interval.
	asked := strings.Join([]string{
		fmt.Sprint(src.Generation), src.Annotations[coppice.RequestedAtAnnotation], src.Annotations[coppice.DeliveredAtAnnotation], src.Status.LastAppliedRevision, src.Status.LastAttemptedRevision,
	}, "\n")
	if wait := m.limited.Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if wait := m.next.Sub(now); wait > 0 && asked == m.asked {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	every := src.Spec.PullRequests.Interval.Duration
	if every <= 0 {
		every = defaultInterval
	}
	wait := every + time.Duration((r.Jitter()-0.5)*0.1*float64(every))
	timed, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	err := r.pass(timed, src, m)
	var limited *forge.LimitedError
	if errors.As(err, &limited) {
		m.limited = limited.Until
		wait = max(wait, limited.Until.Sub(now))
	}
	m.asked, m.next = asked, now.Add(wait)
	// The forge is somebody else's: what it doesn't do now it does next time.
	r.tell(ctx, src, m, err)
	return ctrl.Result{RequeueAfter: wait}, nil
}

// passTimeout bounds one pass: the evaluation of a few pull requests.
const passTimeout = 10 * time.Minute

// tell says once what can't be done.
func (r *Reconciler) tell(ctx context.Context, src *coppice.NodeSource, m *memory, err error) {
	text := ""
	if err != nil {
		text = kube.OneLine(err.Error())
	}
	if text == m.failure {
		return
	}
	m.failure = text
	if err == nil {
		return
	}
	ctrllog.FromContext(ctx).Info("Pull requests could not be looked after", "error", text)
	if r.events != nil {
		r.events.Eventf(src, nil, corev1.EventTypeWarning, "PullRequestsFailed", "Comment", "%s", text)
	}
}

func (r *Reconciler) memory(key types.NamespacedName) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memories[key]
	if m == nil {
		m = &memory{pulls: map[int]*pullMemory{}}
		r.memories[key] = m
	}
	return m
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
}

// pass looks at all pull requests. One that can't be reviewed doesn't keep the others
// from it.
func (r *Reconciler) pass(ctx context.Context, src *coppice.NodeSource, m *memory) error {
	if err := r.connect(ctx, src, m); err != nil {
		return err
	}
	branch := source.Branch(src)
	open, err := m.forge.Pulls(ctx, forge.Query{Base: branch})
	if err != nil {
		return fmt.Errorf("list pull requests: %w", err)
	}
	closed, err := m.forge.Pulls(ctx, forge.Query{Base: branch, Closed: true})
	if err != nil {
		return fmt.Errorf("list merged pull requests: %w", err)
	}
	known := map[int]bool{}
	var errs []error
	// The cluster is looked at once, and only if somebody has to know; so are credentials,
	// which may have to be asked for.
	remote := sync.OnceValues(func() (git.Remote, error) { return r.remote(ctx, src, m.forge) })
	picture := sync.OnceValues(func() (*snapshot.Snapshot, error) { return r.picture(ctx) })
	shared := &shared{trees: map[string]fs.FS{}, tips: map[string]git.Revision{}, bases: map[string]*render.Bundle{}}
	each := func(p forge.Pull, do func(context.Context, *view, *pullMemory) error) bool {
		known[p.Number] = true
		if m.pulls[p.Number] == nil {
			m.pulls[p.Number] = &pullMemory{}
		}
		err := do(ctx, &view{Reconciler: r, src: src, forge: m.forge, pull: p, remote: remote, picture: picture, shared: shared}, m.pulls[p.Number])
		if err != nil {
			errs = append(errs, fmt.Errorf("pull request %d: %w", p.Number, err))
		}
		var limited *forge.LimitedError
		return !errors.As(err, &limited) && ctx.Err() == nil
	}
	open = slices.DeleteFunc(open, func(p forge.Pull) bool { return !wanted(src.Spec.PullRequests, p) })
	// What each says of others takes to have looked at all.
	for _, p := range open {
		if !each(p, r.prepare) {
			return errors.Join(errs...)
		}
	}
	for _, p := range open {
		beside := besides(p.Number, open, m.pulls)
		if !each(p, func(ctx context.Context, v *view, m *pullMemory) error { return r.review(ctx, v, m, beside) }) {
			return errors.Join(errs...)
		}
	}
	for _, p := range closed {
		if p.Merged && r.Clock.Since(p.Updated) < follow && wanted(src.Spec.PullRequests, p) && !each(p, r.outcome) {
			return errors.Join(errs...)
		}
	}
	for n := range m.pulls {
		if !known[n] {
			delete(m.pulls, n)
		}
	}
	return errors.Join(errs...)
}

// picture is the cluster now.
func (r *Reconciler) picture(ctx context.Context) (*snapshot.Snapshot, error) {
	shot, err := snapshot.Take(ctx, r.reader, r.Clock.Now())
	if err == nil && r.Controller != nil {
		shot.Controller, err = r.Controller(ctx)
	}
	return shot, err
}

// wanted reports whether a pull request is one to speak in.
func wanted(spec *coppice.PullRequests, p forge.Pull) bool {
	if p.Fork && spec.Forks == coppice.ForksIgnore {
		return false
	}
	if len(spec.Labels) == 0 {
		return true
	}
	for _, want := range spec.Labels {
		for _, has := range p.Labels {
			if has == want {
				return true
			}
		}
	}
	return false
}

// connect makes the forge of a source, anew when its Secret or its spec has changed.
func (r *Reconciler) connect(ctx context.Context, src *coppice.NodeSource, m *memory) error {
	secret, err := r.secret(ctx, src, src.Spec.PullRequests.SecretRef.Name)
	if err != nil {
		return err
	}
	key := fmt.Sprint(src.Generation, secret.UID, secret.ResourceVersion)
	if m.config == key {
		return nil
	}
	f, err := source.Forge(src, secret.Data, r.Client)
	if err != nil {
		return err
	}
	m.forge, m.config, m.pulls = f, key, map[int]*pullMemory{}
	return nil
}

func (r *Reconciler) secret(ctx context.Context, src *coppice.NodeSource, name string) (*corev1.Secret, error) {
	var s corev1.Secret
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: src.Namespace, Name: name}, &s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no Secret %q; create it as spec.pullRequests.secretRef says", name)
		}
		return nil, fmt.Errorf("read Secret %q: %w", name, err)
	}
	return &s, nil
}

// remote is where the repository is read: as the source reads it, or, where pull
// requests have an address of their own, with what they are commented by.
func (r *Reconciler) remote(ctx context.Context, src *coppice.NodeSource, f forge.Forge) (git.Remote, error) {
	if spec := src.Spec.PullRequests; spec.URL != "" {
		s, err := r.secret(ctx, src, spec.SecretRef.Name)
		if err != nil {
			return git.Remote{}, err
		}
		remote := git.Remote{URL: spec.URL, CABundle: s.Data["ca.crt"]}
		if token := string(s.Data["token"]); token != "" {
			// Forges take any name beside a token but Bitbucket, which has one for it.
			remote.Auth = git.Auth{Username: cmp.Or(string(s.Data["username"]), "x-token-auth"), Password: token}
		}
		if token, is, err := forge.AppToken(ctx, f); err != nil {
			return git.Remote{}, err
		} else if is {
			remote.Auth = git.AppToken{Token: token}.Auth()
		}
		return remote, nil
	}
	return source.Remote(ctx, r.reader, src)
}

// view is one look at one pull request.
type view struct {
	*Reconciler
	src   *coppice.NodeSource
	forge forge.Forge
	pull  forge.Pull
	// remote is where the repository is read, picture the cluster, both of this pass.
	remote  func() (git.Remote, error)
	picture func() (*snapshot.Snapshot, error)
	*shared
}

// shared is what a pass has fetched and evaluated: pull requests have commits in common,
// and each is dealt with once.
type shared struct {
	// trees are the source's folders, by commit, nil where a commit doesn't have it.
	trees map[string]fs.FS
	// tips are where branches are.
	tips map[string]git.Revision
	// bases are what branches declare, by commit, nil for what isn't valid.
	bases map[string]*render.Bundle
}

// name is the source's, as comments have it.
func (v *view) name() string { return v.src.Namespace + "/" + v.src.Name }

// bundles are a pull request's objects and those of its base.
type bundles struct {
	head render.Bundle
	base *render.Bundle
}
