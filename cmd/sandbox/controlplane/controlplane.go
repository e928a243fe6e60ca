package controlplane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
)

// Config says where a control plane lives.
type Config struct {
	// Dir holds etcd's data, keys, kubeconfigs and logs. It must exist.
	Dir string
	// ServiceCIDR is the range of service addresses.
	ServiceCIDR netip.Prefix
	// NodeGrace is how long a node may be silent before it counts as lost; zero
	// means the controller manager's own default.
	NodeGrace time.Duration
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// URL is the API server's address, as in https://127.0.0.1:41234.
	URL string
	// CA is the authority of the API server's certificate, in PEM.
	CA []byte
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string

	// layers are the running components, in the order of their start.
	layers []layer
	failed chan error
}

// layer is a component, or several that don't need each other.
type layer struct {
	ctx    context.Context
	cancel context.CancelFunc
	// ended counts down as components end.
	ended *sync.WaitGroup
}

// Start starts all components and returns when pods can be created: the API
// server is ready and the default service account exists. The context bounds the
// start alone; Stop ends the control plane.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	serviceIP := cfg.ServiceCIDR.Addr().Next()
	now := time.Now()
	keys, err := newPKI(filepath.Join(cfg.Dir, "pki"), serviceIP.AsSlice(), now)
	if err != nil {
		return nil, err
	}
	ids, err := newIdentities()
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(cfg.Dir, "pki", "tokens.csv")
	if err := os.WriteFile(tokens, []byte(ids.csv()), 0o600); err != nil {
		return nil, fmt.Errorf("write the tokens: %w", err)
	}
	logs, err := os.OpenFile(filepath.Join(cfg.Dir, "kubernetes.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the control plane's log: %w", err)
	}
	if err := logTo(logs); err != nil {
		return nil, errors.Join(err, logs.Close())
	}

	// The listener is made here so that no other process can take the port
	// between choosing and using it.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the API server: %w", err), logs.Close())
	}

	c := &ControlPlane{
		URL:        "https://" + listener.Addr().String(),
		CA:         keys.caPEM,
		Kubeconfig: filepath.Join(cfg.Dir, "kubeconfig"),
		failed:     make(chan error, 4),
	}
	if err := c.start(ctx, cfg, keys, ids, tokens, listener); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, cfg Config, keys pki, ids identities, tokens string, listener net.Listener) error {
	store := c.layer(ctx)
	etcdURL, stopped, err := startEtcd(ctx, store.ctx, filepath.Join(cfg.Dir, "etcd"), filepath.Join(cfg.Dir, "etcd.log"))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.run(store, "etcd", func() error { return <-stopped })

	for path, id := range map[string]identity{
		c.Kubeconfig: ids.admin,
		filepath.Join(cfg.Dir, "pki", "controller-manager.kubeconfig"): ids.controllerManager,
		filepath.Join(cfg.Dir, "pki", "scheduler.kubeconfig"):          ids.scheduler,
	} {
		if err := writeKubeconfig(path, c.URL, keys.caPEM, id); err != nil {
			return errors.Join(err, listener.Close())
		}
	}

	server := c.layer(ctx)
	c.run(server, "kube-apiserver", func() error {
		return runAPIServer(server.ctx, apiServerConfig{
			etcd: etcdURL, listener: listener, keys: keys, tokens: tokens, serviceCIDR: cfg.ServiceCIDR.String(), url: c.URL,
		})
	})
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := c.waitReady(ctx, client); err != nil {
		return err
	}
	clients := c.layer(ctx)
	c.run(clients, "kube-controller-manager", func() error {
		return runControllerManager(clients.ctx, controllerManagerConfig{
			kubeconfig: filepath.Join(cfg.Dir, "pki", "controller-manager.kubeconfig"),
			keys:       keys, serviceCIDR: cfg.ServiceCIDR.String(), plugins: filepath.Join(cfg.Dir, "volume-plugins"),
			nodeGrace: cfg.NodeGrace,
		})
	})
	c.run(clients, "kube-scheduler", func() error {
		return runScheduler(clients.ctx, filepath.Join(cfg.Dir, "pki", "scheduler.kubeconfig"))
	})
	return c.waitServiceAccount(ctx, client)
}

// layer begins a layer. It keeps the values of a context but not its end.
func (c *ControlPlane) layer(ctx context.Context) layer {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := layer{ctx: ctx, cancel: cancel, ended: &sync.WaitGroup{}}
	c.layers = append(c.layers, l)
	return l
}

// run starts one component of a layer. Its end is a failure unless it was asked
// to end.
func (c *ControlPlane) run(l layer, name string, body func() error) {
	l.ended.Go(func() {
		if err := body(); l.ctx.Err() == nil {
			c.failed <- fmt.Errorf("%s ended by itself: %w", name, err)
		}
	})
}

// Failed yields an error when a component ends without being asked to.
func (c *ControlPlane) Failed() <-chan error { return c.failed }

// REST returns the administrator's client configuration, without rate limits.
func (c *ControlPlane) REST() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	cfg.QPS = -1
	return cfg, nil
}

// Client returns the administrator's client.
func (c *ControlPlane) Client() (kubernetes.Interface, error) {
	cfg, err := c.REST()
	if err != nil {
		return nil, err
	}
	// Half the work of JSON, for both sides.
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return client, nil
}

// stopLimit bounds the end of one layer. Everything that a component could still
// write is thrown away with its folder, so there is no reason to wait for longer.
const stopLimit = 3 * time.Second

// Stop ends all components, those first that need the others: while it ends, the
// API server still has to reach etcd. The log stays open, as its last lines come
// when the components are long gone.
func (c *ControlPlane) Stop() {
	for _, l := range slices.Backward(c.layers) {
		l.cancel()
		ended := make(chan struct{})
		go func() {
			l.ended.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(stopLimit):
		}
	}
	c.layers = nil
}

// logTo sends the log of all components to one file. They log through klog, of
// which a process has one; by default it also writes errors to stderr.
func logTo(file *os.File) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("set klog's flag %s: %w", name, err)
		}
	}
	klog.SetOutput(file)
	return nil
}

// readyPoll is how often readiness is asked for; it can't be watched.
const readyPoll = 50 * time.Millisecond

// waitReady waits until the API server says that it's ready.
func (c *ControlPlane) waitReady(ctx context.Context, client kubernetes.Interface) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		var status int
		client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		if status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for kube-apiserver: %w", ctx.Err())
		case err := <-c.failed:
			return err
		case <-tick.C:
		}
	}
}

// waitServiceAccount waits for default/default: the API server refuses pods of a
// namespace before its service account exists.
func (c *ControlPlane) waitServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	accounts := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "serviceaccounts", metav1.NamespaceDefault,
		fields.OneTermEqualSelector(metav1.ObjectNameField, "default"))
	done := make(chan error, 1)
	go func() {
		_, err := watchtools.UntilWithSync(ctx, accounts, &corev1.ServiceAccount{}, nil, func(e watch.Event) (bool, error) {
			return e.Type == watch.Added || e.Type == watch.Modified, nil
		})
		done <- err
	}()
	select {
	case err := <-c.failed:
		return err
	case err := <-done:
		if err != nil {
			return fmt.Errorf("wait for the default service account: %w", err)
		}
		return nil
	}
}
