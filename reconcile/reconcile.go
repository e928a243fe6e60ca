// Package reconcile runs the controllers: it wires the watch-fed state, the cloud
// and one folder a controller into a manager, and decides nothing itself.
package reconcile

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/coppice-dev/coppice/internal/cloud"
	"github.com/coppice-dev/coppice/internal/cluster"
	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/pack"
	"github.com/coppice-dev/coppice/internal/record"
	"github.com/coppice-dev/coppice/internal/snapshot"
	"github.com/coppice-dev/coppice/reconcile/disrupt"
	"github.com/coppice-dev/coppice/reconcile/health"
	"github.com/coppice-dev/coppice/reconcile/interrupt"
	"github.com/coppice-dev/coppice/reconcile/keep"
	"github.com/coppice-dev/coppice/reconcile/lifecycle"
	"github.com/coppice-dev/coppice/reconcile/metrics"
	"github.com/coppice-dev/coppice/reconcile/nodeclass"
	"github.com/coppice-dev/coppice/reconcile/provision"
	"github.com/coppice-dev/coppice/reconcile/pullrequest"
	"github.com/coppice-dev/coppice/reconcile/source"
	"github.com/coppice-dev/coppice/schemas"
)

// Cloud is what all controllers together ask of a cloud.
type Cloud interface {
	lifecycle.Cloud
	disrupt.Cloud
	interrupt.Queue
	nodeclass.Cloud
	keep.Cloud
	// Market is what plans of pull requests and of people count with.
	Market(ctx context.Context) (cloud.Market, error)
}

// Options configure the controllers.
type Options struct {
	// Kube says how to reach the API server.
	Kube *rest.Config
	// EngineOff leaves nodes to Karpenter: sources are applied and reported on, and
	// nothing is launched, drained or written into what Karpenter owns. Cloud and
	// everything else that concerns nodes may be left out then.
	EngineOff bool
	// Version and Commit are what the program was built from, for its metrics.
	Version, Commit string
	// Cloud launches and ends instances.
	Cloud Cloud
	// Gates are the feature gates that concern disruption.
	Gates disrupt.Gates
	// Interruptions reads the cloud's messages about instances that will end, as
	// Interruption says.
	Interruptions bool
	Interruption  interrupt.Options
	// Source configures fetching and reporting.
	Source source.Options
	// Batch bounds how long pending pods are gathered.
	Batch provision.Batch
	// Limits bound what the nodes of all NodePools may add up to.
	Limits corev1.ResourceList
	// Preferences says what pods' preferences are worth, MinValues what happens where
	// a pool's minValues can't be met.
	Preferences pack.Policy
	MinValues   pack.MinValuesPolicy
	// Settings are these and more in the words of the flags, for plans that rehearse what
	// would be decided; nil stands for the defaults.
	Settings *snapshot.Settings
	// Timeouts bound how long a NodeClaim may take to become a ready Node.
	Timeouts lifecycle.Timeouts
	// KnowledgeNamespace is where the ConfigMap is that keeps what was learnt of the
	// cloud; without it nothing is kept.
	KnowledgeNamespace string
	// Clock is the time that decisions follow; nil means real time.
	Clock clock.WithTicker
	// MetricsAddress and HealthAddress are host:port; "0" turns a server off.
	MetricsAddress, HealthAddress string
	// Profiling serves Go's profiles beside the metrics.
	Profiling bool
	// SecureAddress is where the decision record is served, and the metrics again,
	// over TLS to those whom the API server lets; "0" and "" turn it off.
	SecureAddress string
	// LeaderElection makes replicas wait for each other, by a Lease in
	// LeaderElectionNamespace that lasts LeaseDuration after its holder has died.
	LeaderElection          bool
	LeaderElectionNamespace string
	LeaseDuration           time.Duration
}

// Run runs the controllers until ctx ends or one of them can't go on.
func Run(ctx context.Context, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	mgr, err := newManager(o)
	if err != nil {
		return err
	}
	if o.EngineOff {
		return runSources(ctx, mgr, o)
	}
	guard := &alone{live: mgr.GetAPIReader(), clock: clock.RealClock{}}
	if err := guard.check(ctx); err != nil {
		return err
	}
	if err := mgr.Add(guard); err != nil {
		return fmt.Errorf("watch for Karpenter: %w", err)
	}
	tracker := &health.Tracker{}
	state, book := cluster.NewState(o.Clock), record.NewBook()
	tell := func(ctx context.Context) (*snapshot.Controller, error) {
		c := &snapshot.Controller{Settings: snapshot.DefaultSettings()}
		if o.Settings != nil {
			c.Settings = *o.Settings
		}
		var err error
		c.Market, err = o.Cloud.Market(ctx)
		return c, err
	}
	if err := serveRecord(mgr, book, tell, o); err != nil {
		return err
	}
	synced, err := cluster.Watch(ctx, mgr.GetCache(), state)
	if err != nil {
		return fmt.Errorf("start controllers: %w", err)
	}
	set := metrics.New()
	set.Built(o.Version, o.Commit)
	if err := set.Register(crmetrics.Registry); err != nil {
		return fmt.Errorf("start controllers: %w", err)
	}
	watcher := metrics.NewWatcher(state, synced, mgr.GetClient(), tracker, o.Clock, mgr.Elected())
	if err := crmetrics.Registry.Register(watcher); err != nil {
		return fmt.Errorf("start controllers: register metrics: %w", err)
	}
	defer crmetrics.Registry.Unregister(watcher)
	if err := set.Follow(ctx, mgr.GetCache(), o.Clock, mgr.Elected()); err != nil {
		return fmt.Errorf("start controllers: %w", err)
	}
	o.Cloud = measured{o.Cloud, set, o.Clock}
	nominator := provision.NewNominator(mgr.GetClient(), mgr.GetAPIReader(), state)
	for name, setup := range map[string]func() error{
		"source": func() error { return source.Setup(mgr, o.Source) },
		"pullrequest": func() error {
			return pullrequest.Setup(mgr, pullrequest.Options{ClusterName: o.Source.ClusterName, Evaluate: o.Source.Evaluate, Jitter: o.Source.Jitter, Controller: tell})
		},
		"nodeclass": func() error { return nodeclass.Setup(mgr, o.Cloud) },
		"provision": func() error {
			return provision.Setup(mgr, state, synced, o.Cloud, o.Clock, provision.Options{Batch: o.Batch, Limits: o.Limits, Preferences: o.Preferences, MinValues: o.MinValues, Nominator: nominator, Book: book, Health: tracker, Metrics: set})
		},
		"lifecycle": func() error {
			return lifecycle.Setup(mgr, o.Cloud, o.Clock, lifecycle.Options{Timeouts: o.Timeouts, State: state, Settle: nominator.Settle, Health: tracker, Metrics: set})
		},
		"interrupt": func() error {
			options := o.Interruption
			options.Queue = o.Interruptions
			return interrupt.Setup(mgr, o.Cloud, o.Clock, options)
		},
		"keep": func() error { return keep.Setup(mgr, o.Cloud, o.Clock, o.KnowledgeNamespace) },
		"disrupt": func() error {
			return disrupt.Setup(mgr, state, synced, o.Cloud, o.Clock, o.Gates, pack.Options{Preferences: o.Preferences, MinValues: o.MinValues}, book)
		},
	} {
		if err := setup(); err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return mgr.Start(ctx)
}

func newManager(o Options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register Kubernetes types: %w", err)
	}
	if err := schemas.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register our types: %w", err)
	}
	retry := o.LeaseDuration / 8
	renew := o.LeaseDuration * 2 / 3
	again := true
	mgr, err := ctrl.NewManager(o.Kube, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              "coppice-leader-election",
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		HealthProbeBindAddress:        o.HealthAddress,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddress, ExtraHandlers: profiles(o.Profiling)},
		Cache: cache.Options{
			// Who wrote which field, and what else is left out, is read past the cache
			// where it matters.
			DefaultTransform: cluster.NewSlim(),
		},
		// The name of each controller is its own; this is about a process that runs them
		// again after they have ended, as tests do.
		Controller: config.Controller{SkipNameValidation: &again},
		Client: client.Options{Cache: &client.CacheOptions{
			// A cache of Secrets would hold all of the cluster's.
			DisableFor: []client.Object{&corev1.Secret{}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	r := kube.NewRecorder(mgr.GetClient(), o.Clock, snapshot.Reporter)
	if err := mgr.Add(r); err != nil {
		return nil, fmt.Errorf("write events: %w", err)
	}
	return telling{mgr, r}, nil
}

// profiles are what serves Go's profiles, nothing unless they are on.
func profiles(on bool) map[string]http.Handler {
	if !on {
		return nil
	}
	return map[string]http.Handler{
		"/debug/pprof/":        http.HandlerFunc(pprof.Index), // and each of its kinds by name
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}

// telling is a manager with one recorder of events for all its controllers, which keeps
// every text.
type telling struct {
	ctrl.Manager
	recorder recorder.EventRecorder
}

// GetEventRecorder implements ctrl.Manager.
func (t telling) GetEventRecorder(string) recorder.EventRecorder { return t.recorder }

// serveRecord serves what was decided and what it rests on. Who asks has to give a bearer
// token that the API server knows and be allowed to get the path.
func serveRecord(mgr ctrl.Manager, book *record.Book, tell snapshot.Tell, o Options) error {
	if o.SecureAddress == "" {
		return nil // the server would choose an address by itself
	}
	server, err := metricsserver.NewServer(metricsserver.Options{
		BindAddress: o.SecureAddress, SecureServing: true,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
		ExtraHandlers:  map[string]http.Handler{record.Path: book, snapshot.ControllerPath: tell},
	}, o.Kube, mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("serve the decision record at %s: %w", o.SecureAddress, err)
	}
	if server == nil {
		return nil
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("serve the decision record at %s: %w", o.SecureAddress, err)
	}
	return nil
}
