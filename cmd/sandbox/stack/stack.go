package stack

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	componentversion "k8s.io/component-base/version"

	"github.com/coppice-dev/coppice/cmd/sandbox/controlplane"
	"github.com/coppice-dev/coppice/cmd/sandbox/kubelet"
	"github.com/coppice-dev/coppice/internal/ec2sim"
	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
)

// Config describes a sandbox. The zero value of a field other than DataDir and
// Log means what its comment says.
type Config struct {
	// DataDir holds everything that is written. It must exist.
	DataDir string
	// ClusterName is the EKS name of the cluster; "demo" if empty.
	ClusterName string
	// Region is simulated; us-west-2 if empty.
	Region string
	// Queue is the SQS queue for interruptions; the cluster's name if empty.
	Queue string

	// BootDelay passes from a launch to running, ± BootJitter, and ShutdownDelay
	// from a request to terminate to terminated.
	BootDelay, BootJitter, ShutdownDelay time.Duration
	// ReadyDelay passes from a node's registration to its being ready, PodDelay
	// from a pod's being bound to its running.
	ReadyDelay, PodDelay time.Duration
	// NodeGrace is how long a node may be silent before it counts as lost; 50 s,
	// the default of kube-controller-manager, if zero. Heartbeats come so often
	// that four may be missed.
	NodeGrace time.Duration
	// Seed makes the simulator's choices repeatable.
	Seed uint64
	// SystemNode gives the cluster a node from the start, as a real one has for its
	// autoscaler to run on.
	SystemNode bool
	// Unthrottled lets any number of API calls through.
	Unthrottled bool
	// Speed is how much faster than real time passes in AWS; 1 if zero. Kubernetes
	// keeps to real time.
	Speed float64
	// Scenario is what happens in AWS, and when, from the start.
	Scenario *ec2sim.Scenario

	// Log gets what happens to machines. The control plane logs to a file.
	Log *slog.Logger
}

// serviceCIDR is the range that EKS gives services by default.
const serviceCIDR = "10.100.0.0/16"

// defaultNodeGrace is --node-monitor-grace-period of kube-controller-manager.
const defaultNodeGrace = 50 * time.Second

// Stack is a running sandbox.
type Stack struct {
	Endpoints endpoints.Endpoints
	EC2       *ec2sim.Server
	Git       *gitserver.Server
	Kubelets  *kubelet.Fleet
	// Version is that of Kubernetes, as in v1.37.2.
	Version string
	// Client is the administrator's, without rate limits; REST is what it was
	// made from.
	Client kubernetes.Interface
	REST   *rest.Config

	control *controlplane.ControlPlane
	servers []*http.Server
	cancel  context.CancelFunc
	failed  chan error
	wg      sync.WaitGroup
	unwatch func()
}

// Up starts a sandbox and returns when it can be used. Close ends it.
func Up(ctx context.Context, cfg Config) (*Stack, error) {
	cfg.ClusterName = cmp.Or(cfg.ClusterName, "demo")
	cfg.Region = cmp.Or(cfg.Region, "us-west-2")
	cfg.Queue = cmp.Or(cfg.Queue, cfg.ClusterName)
	cfg.NodeGrace = cmp.Or(cfg.NodeGrace, defaultNodeGrace)

	ctx, cancel := context.WithCancel(ctx)
	s := &Stack{Version: kubernetesVersion(), cancel: cancel, failed: make(chan error, 4), unwatch: func() {}}
	if err := s.up(ctx, cfg); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stack) up(ctx context.Context, cfg Config) error {
	e := &s.Endpoints
	*e = endpoints.Endpoints{PID: os.Getpid(), DataDir: cfg.DataDir, ClusterName: cfg.ClusterName, Region: cfg.Region, Queue: cfg.Queue, GitUsername: "coppice"}
	secrets := make([]string, 3)
	for i := range secrets {
		raw := make([]byte, 20)
		if _, err := rand.Read(raw); err != nil {
			return fmt.Errorf("draw a credential: %w", err)
		}
		secrets[i] = hex.EncodeToString(raw)
	}
	e.GitPassword, e.SecretAccessKey = secrets[0], secrets[1]
	e.AccessKeyID = "AKIASANDBOX" + secrets[2][:9]

	control, err := controlplane.Start(ctx, controlplane.Config{
		Dir: cfg.DataDir, ServiceCIDR: netip.MustParsePrefix(serviceCIDR), NodeGrace: cfg.NodeGrace,
	})
	if err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	s.control = control
	e.Kubeconfig, e.APIServer = control.Kubeconfig, control.URL
	if s.REST, err = control.REST(); err != nil {
		return err
	}
	if s.Client, err = control.Client(); err != nil {
		return err
	}
	version, err := s.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the version of Kubernetes: %w", err)
	}

	s.EC2, err = ec2sim.New(ec2sim.Config{
		Region: cfg.Region,
		Clusters: []ec2sim.Cluster{{
			Name: cfg.ClusterName, Endpoint: control.URL, CA: control.CA, ServiceCIDR: serviceCIDR,
			Version: version.Major + "." + version.Minor,
		}},
		BootDelay: cfg.BootDelay, BootJitter: cfg.BootJitter, ShutdownDelay: cfg.ShutdownDelay,
		Seed: cfg.Seed, Keys: map[string]string{e.AccessKeyID: e.SecretAccessKey},
		Queues: []string{cfg.Queue}, Unthrottled: cfg.Unthrottled,
		Clock: ec2sim.NewClock(cmp.Or(cfg.Speed, 1)), Scenario: cfg.Scenario,
	})
	if err != nil {
		return fmt.Errorf("start the EC2 simulator: %w", err)
	}
	if e.EC2, err = s.serve(s.EC2); err != nil {
		return err
	}

	repos := filepath.Join(cfg.DataDir, "git")
	if err := os.Mkdir(repos, 0o700); err != nil {
		return fmt.Errorf("make the folder of repositories: %w", err)
	}
	s.Git, err = gitserver.New(gitserver.Config{Dir: repos, Username: e.GitUsername, Password: e.GitPassword, AutoCreate: true})
	if err != nil {
		return err
	}
	if e.Git, err = s.serve(s.Git); err != nil {
		return err
	}

	s.Kubelets = kubelet.New(kubelet.Config{
		Client: s.Client, ClusterName: cfg.ClusterName, Endpoint: control.URL, CA: control.CA, Version: s.Version,
		ReadyDelay: cfg.ReadyDelay, PodDelay: cfg.PodDelay,
		// The kubelet's 40 s to the controller manager's 50.
		LeaseDuration: cfg.NodeGrace * 4 / 5,
		Log:           cfg.Log,
	})
	if cfg.SystemNode {
		s.Kubelets.Boot(systemNode(cfg.Region, cfg.ClusterName, control.URL, control.CA))
	}
	s.unwatch = s.EC2.Watch(func(i ec2sim.Instance) { s.follow(cfg.Region, i) })
	s.wg.Go(func() {
		if err := s.Kubelets.Run(ctx); err != nil {
			s.failed <- err
		}
	})
	s.wg.Go(func() {
		select {
		case err := <-control.Failed():
			s.failed <- err
		case <-ctx.Done():
		}
	})
	return nil
}

// kubernetesVersion is the version of the components that are built in.
func kubernetesVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/kubernetes" {
				return dep.Version
			}
		}
	}
	return "v" + componentversion.DefaultKubeBinaryVersion + ".0"
}

// serve serves a handler on a port of its own and returns the URL.
func (s *Stack) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	s.servers = append(s.servers, srv)
	s.wg.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	})
	return "http://" + l.Addr().String(), nil
}

// follow tells the kubelets what became of an instance.
func (s *Stack) follow(region string, i ec2sim.Instance) {
	switch i.State {
	case "running":
		if i.Failed {
			return
		}
		if i.Rebooting {
			s.Kubelets.Halt(i.ID)
			return
		}
		if typ, ok := s.EC2.TypeInfo(i.Type); ok {
			s.Kubelets.Boot(machine(region, i, typ))
		}
	case "shutting-down", "stopping":
		s.Kubelets.Halt(i.ID)
	case "terminated":
		s.Kubelets.Gone(i.ID)
	}
}

// Failed yields an error when a part ends without being asked to.
func (s *Stack) Failed() <-chan error { return s.failed }

// stopLimit bounds Close, once the control plane has ended; see its own limit.
const stopLimit = 5 * time.Second

// Close ends all parts, and waits for them for so long as makes sense. The data
// directory is the caller's to remove.
func (s *Stack) Close() {
	s.unwatch()
	if s.EC2 != nil {
		s.EC2.Close()
	}
	for _, srv := range s.servers {
		_ = srv.Close()
	}
	s.cancel()
	if s.control != nil {
		s.control.Stop()
	}
	ended := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(stopLimit):
	}
}
