package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/karpenter"
)

// Config says what is shown, and where to.
type Config struct {
	// Coppice is the path of the coppice program.
	Coppice string
	// Examples is the folder with the single-cluster and workloads examples.
	Examples string
	// DataDir holds the sandbox's data and logs. It must exist and be empty.
	DataDir string
	// Patience multiplies every limit; 1 if zero. A slow or busy machine needs more.
	Patience int
	// Keep leaves everything running at the end, until the context ends.
	Keep bool
	Out  io.Writer
}

// The simulated cloud is quick but not instant: a machine boots in two seconds and
// is ready another one later. On EC2 it takes 20 to 40 s in all.
const (
	bootDelay     = 2 * time.Second
	bootJitter    = 500 * time.Millisecond
	shutdownDelay = time.Second
	readyDelay    = time.Second
	podDelay      = 200 * time.Millisecond
)

// interval is how often the source is polled for commits and for drift.
const interval = 5 * time.Second

// scene is what the steps act on.
type scene struct {
	cfg   Config
	story *story
	stack *stack.Stack
	// client is the administrator's.
	client client.WithWatch
	// author is the person who commits.
	author *author
	// pushes are those that the Git server took.
	pushes  *pushes
	coppice *controller
	// failed gets an error when the controller ends by itself.
	failed chan error
	// quiet yields the outcome of the check that runs beside the steps.
	quiet <-chan error
	// old is the claim of the node that is to expire.
	old *karpenter.NodeClaim
}

// step is one part of the story.
type step struct {
	title string
	// limit is the most that it may take.
	limit time.Duration
	run   func(context.Context, *scene) error
}

func steps() []step {
	return []step{
		{"Sandbox", 60 * time.Second, sandboxUp},
		{"Repository", 10 * time.Second, makeRepository},
		{"Coppice starts", 30 * time.Second, startCoppice},
		{"Pods want nodes", 40 * time.Second, pendingPods},
		{"Change by commit", 40 * time.Second, changeByCommit},
		{"Change by hand", 30 * time.Second, driftByHand},
		{"Bad commit", 30 * time.Second, badCommit},
		{"Scale to zero", 60 * time.Second, scaleToZero},
		// The crash fills the time in which the node of the ninth step grows old.
		{"Expiry begins", 30 * time.Second, expiryBegins},
		{"Crash", 60 * time.Second, crash},
		{"Expiry ends", 45 * time.Second, expiryEnds},
	}
}

// Run plays the demo. It returns an error as soon as a step fails.
func Run(ctx context.Context, cfg Config) error {
	st := newStory(cfg.Out, time.Now)
	// A controller ends once, and two are started at most.
	s := &scene{cfg: cfg, story: st, failed: make(chan error, 2)}
	defer s.close()

	st.title("From a commit to a running node, and back")
	failed := s.play(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	st.summary()
	if cfg.Keep && s.stack != nil {
		s.keep(ctx)
	}
	return failed
}

// play runs the steps until one fails.
func (s *scene) play(ctx context.Context) error {
	for i, step := range steps() {
		step.limit = s.patient(step.limit)
		s.story.begin(i+1, step.title, step.limit)
		err := s.runStep(ctx, step)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.story.end(err)
		if err != nil {
			if s.client != nil {
				if text := s.explain(ctx); text != "" {
					s.story.quote("what the cluster says", text)
				}
			}
			if s.coppice != nil {
				s.story.quote("the end of the controller's log", s.coppice.LogTail())
			}
			return fmt.Errorf("step %d, %s: %w", i+1, step.title, err)
		}
	}
	return nil
}

// patient is a limit as it counts on this machine.
func (s *scene) patient(limit time.Duration) time.Duration {
	return limit * time.Duration(max(s.cfg.Patience, 1))
}

// runStep bounds a step by its limit and by the life of what it relies on.
func (s *scene) runStep(ctx context.Context, step step) error {
	ctx, cancel := context.WithTimeoutCause(ctx, step.limit, fmt.Errorf("it did not happen within %s", step.limit))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var broken <-chan error // yields nothing while there is no sandbox
	if s.stack != nil {
		broken = s.stack.Failed()
	}
	go func() {
		select {
		case <-ctx.Done():
		case err := <-broken:
			fail(err)
		case err := <-s.failed:
			fail(err)
		}
	}()
	return step.run(ctx, s)
}

// keep tells where everything is and waits for the end.
func (s *scene) keep(ctx context.Context) {
	e := s.stack.Endpoints
	s.story.printf("\nEverything is left running until Ctrl-C:\n\n")
	s.story.printf("  export KUBECONFIG=%s\n", e.Kubeconfig)
	s.story.printf("  Kubernetes  %s\n  EC2         %s\n  Git         %s\n", e.APIServer, e.EC2, e.CloneURL(repoName))
	if s.coppice != nil {
		s.story.printf("  controller  log in %s, metrics at %s\n", s.coppice.Log, s.coppice.metricsURL())
	}
	s.story.printf("  logs        %s\n", e.DataDir)
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-s.stack.Failed():
			s.story.printf("%v\n", err)
			return
		case err := <-s.failed:
			s.story.printf("%v; it is started again\n", err)
			if err := s.coppice.Start(); err != nil {
				s.story.printf("%v\n", err)
				return
			}
		}
	}
}

func (s *scene) close() {
	if s.coppice != nil {
		s.coppice.Stop()
	}
	if s.pushes != nil {
		s.pushes.close()
	}
	if s.stack != nil {
		s.stack.Close()
	}
}

// sandboxUp is step 1.
func sandboxUp(ctx context.Context, s *scene) error {
	log, err := os.OpenFile(filepath.Join(s.cfg.DataDir, "machines.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	dir := filepath.Join(s.cfg.DataDir, "sandbox")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	// The stack outlives the step.
	st, err := stack.Up(context.WithoutCancel(ctx), stack.Config{
		DataDir: dir, BootDelay: bootDelay, BootJitter: bootJitter, ShutdownDelay: shutdownDelay,
		ReadyDelay: readyDelay, PodDelay: podDelay, Seed: 1, SystemNode: true,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	s.stack = st
	s.pushes = watchPushes(st.Git)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, schemas.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("learn the kinds: %w", err)
		}
	}
	if s.client, err = client.NewWithWatch(st.REST, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	e := st.Endpoints
	s.story.say("kube-apiserver, kube-scheduler and kube-controller-manager %s with etcd, at %s", st.Version, e.APIServer)
	s.story.say("EC2 in %s at %s: machines boot in %s ± %s", e.Region, e.EC2, bootDelay, bootJitter)
	s.story.say("Git at %s, with a password", e.Git)
	s.story.fact("Kubernetes %s, EC2 and Git on 127.0.0.1", st.Version)
	return nil
}
