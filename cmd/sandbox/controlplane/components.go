package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// The components' own limits of 20 and 50 requests per second, not the
// autoscaler, would decide how long a run of 2,000 pods takes.
const (
	componentQPS   = "2000"
	componentBurst = "4000"
)

// The options are taken from the components' packages rather than from their
// commands: each command installs a signal handler of its own, and the second
// one in a process panics.

type apiServerConfig struct {
	etcd, tokens, serviceCIDR, url string
	listener                       net.Listener
	keys                           pki
}

func runAPIServer(ctx context.Context, cfg apiServerConfig) error {
	opts := apiserveroptions.NewServerRunOptions()
	opts.SecureServing.Listener = cfg.listener
	err := parse("kube-apiserver", opts.Flags(), map[string]string{
		"etcd-servers":                     cfg.etcd,
		"bind-address":                     "127.0.0.1",
		"advertise-address":                "127.0.0.1",
		"tls-cert-file":                    cfg.keys.certFile,
		"tls-private-key-file":             cfg.keys.keyFile,
		"token-auth-file":                  cfg.tokens,
		"authorization-mode":               "Node,RBAC",
		"service-cluster-ip-range":         cfg.serviceCIDR,
		"service-account-issuer":           cfg.url,
		"service-account-signing-key-file": cfg.keys.serviceAccountKey,
		"service-account-key-file":         cfg.keys.serviceAccount,
		"api-audiences":                    cfg.url,
		// The default publishes 127.0.0.1 as the endpoint of the service
		// "kubernetes", which endpoint validation refuses.
		"endpoint-reconciler-type": "none",
		"allow-privileged":         "true",
		"profiling":                "false",
	})
	if err != nil {
		return err
	}
	// One registry of versions and feature gates serves all three components.
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set the feature gates: %w", err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := opts.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete the options of kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("options of kube-apiserver: %w", utilerrors.NewAggregate(errs))
	}
	return apiserver.Run(ctx, completed)
}

type controllerManagerConfig struct {
	kubeconfig, serviceCIDR, plugins string
	keys                             pki
	nodeGrace                        time.Duration
}

func runControllerManager(ctx context.Context, cfg controllerManagerConfig) error {
	opts, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("options of kube-controller-manager: %w", err)
	}
	known, disabled, aliases := controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	flags := map[string]string{
		"kubeconfig":                       cfg.kubeconfig,
		"leader-elect":                     "false",
		"secure-port":                      "0",
		"authentication-skip-lookup":       "true",
		"use-service-account-credentials":  "true",
		"service-account-private-key-file": cfg.keys.serviceAccountKey,
		"root-ca-file":                     cfg.keys.caFile,
		"service-cluster-ip-range":         cfg.serviceCIDR,
		"allocate-node-cidrs":              "false",
		// The default is a folder under /usr/libexec, made on start.
		"flex-volume-plugin-dir": cfg.plugins,
		"kube-api-qps":           componentQPS,
		"kube-api-burst":         componentBurst,
	}
	if cfg.nodeGrace > 0 {
		flags["node-monitor-grace-period"] = cfg.nodeGrace.String()
	}
	if err := parse("kube-controller-manager", opts.Flags(known, disabled, aliases), flags); err != nil {
		return err
	}
	c, err := opts.Config(ctx, known, disabled, aliases)
	if err != nil {
		return fmt.Errorf("configure kube-controller-manager: %w", err)
	}
	return ignoreEnd(ctx, controllermanager.Run(ctx, c.Complete()))
}

func runScheduler(ctx context.Context, kubeconfig string) error {
	opts := scheduleroptions.NewOptions()
	err := parse("kube-scheduler", *opts.Flags, map[string]string{
		"kubeconfig":                 kubeconfig,
		"leader-elect":               "false",
		"secure-port":                "0",
		"authentication-skip-lookup": "true",
		"kube-api-qps":               componentQPS,
		"kube-api-burst":             componentBurst,
	})
	if err != nil {
		return err
	}
	name, err := cache.NewInformerName("kube-scheduler")
	if err != nil {
		return fmt.Errorf("name the scheduler's informers: %w", err)
	}
	opts.InformerName = name
	cc, sched, err := scheduler.Setup(ctx, opts)
	if err != nil {
		return fmt.Errorf("configure kube-scheduler: %w", err)
	}
	return ignoreEnd(ctx, scheduler.Run(ctx, cc, sched))
}

// ignoreEnd drops the error by which a component reports that it was stopped.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		return errors.New("it returned")
	}
	return err
}

// parse sets the named flags, and no others.
func parse(component string, sets cliflag.NamedFlagSets, values map[string]string) error {
	all := pflag.NewFlagSet(component, pflag.ContinueOnError)
	for _, name := range sets.Order {
		all.AddFlagSet(sets.FlagSets[name])
	}
	for name, value := range values {
		if err := all.Set(name, value); err != nil {
			return fmt.Errorf("flag --%s of %s: %w", name, component, err)
		}
	}
	return nil
}
