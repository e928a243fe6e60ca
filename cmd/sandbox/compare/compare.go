package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/internal/cloud/ec2"
	"github.com/coppice-dev/coppice/schemas"
)

// Config says what is compared.
type Config struct {
	// Coppice and Karpenter are the paths of the programs.
	Coppice, Karpenter string
	// Examples is the folder with the workloads of the demo.
	Examples string
	// DataDir holds the sandbox's data and all logs. It must exist and be empty.
	DataDir string
	// Scenarios are played in this order; all of them if empty.
	Scenarios []string
	// Rounds is how often each is played with each controller.
	Rounds int
	// Window is how long consolidation is watched after a scale-down, Trough how
	// long in the constrained trough.
	Window, Trough time.Duration
	// BootDelay is how long machines boot. At zero what is compared is the
	// controllers' own time.
	BootDelay time.Duration
	// EqualBatch gives the peer Coppice's batch window in place of its default.
	EqualBatch bool
	// KarpenterEnv are further environment variables of the peer, as in NAME=value.
	KarpenterEnv []string
	// OutFile gets the results as JSON; none if empty.
	OutFile string
	Out     io.Writer
}

// Validate says what about the configuration makes no sense.
func (c Config) Validate() error {
	switch {
	case c.Rounds < 1:
		return fmt.Errorf("%d rounds: give at least 1", c.Rounds)
	case c.Window <= 0 || c.Trough <= 0:
		return errors.New("a window must be longer than nothing")
	}
	for _, kv := range c.KarpenterEnv {
		if !strings.Contains(kv, "=") {
			return fmt.Errorf("environment variable %q: write it as NAME=value", kv)
		}
	}
	_, _, err := choose(scenarios(c), c.Scenarios)
	return err
}

// bench is what all runs share.
type bench struct {
	cfg    Config
	stack  *stack.Stack
	client client.WithWatch
	// cloud tells what can be bought, for lower bounds.
	cloud  *ec2.Provider
	failed chan error
	began  time.Time
}

// Run plays the scenarios and prints what was measured. It returns an error if a
// controller fails, or the proof does; a bar that is missed is no error.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	chosen, proof, err := choose(scenarios(cfg), cfg.Scenarios)
	if err != nil {
		return err
	}
	version, err := checkPeer(cfg.Karpenter)
	if err != nil {
		return err
	}
	runs := len(chosen) * cfg.Rounds * 2
	// A program ends by itself once in each run at most.
	b := &bench{cfg: cfg, failed: make(chan error, runs+1), began: time.Now()}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := b.up(ctx); err != nil {
		return err
	}
	defer b.stack.Close()
	go func() {
		select {
		case err := <-b.stack.Failed():
			fail(err)
		case err := <-b.failed:
			fail(err)
		case <-ctx.Done():
		}
	}()
	rep := &report{
		Karpenter: version, Kubernetes: b.stack.Version, CPUs: runtime.NumCPU(), Go: runtime.Version(),
		BootSeconds: cfg.BootDelay.Seconds(), EqualBatch: cfg.EqualBatch, KarpenterEnv: cfg.KarpenterEnv,
	}
	err = b.playAll(ctx, rep, chosen, proof)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if len(rep.Results) > 0 {
		fmt.Fprint(cfg.Out, rep.markdown(chosen))
		if cfg.OutFile != "" {
			err = errors.Join(err, rep.write(cfg.OutFile))
		}
	}
	return err
}

func (b *bench) playAll(ctx context.Context, rep *report, chosen []scenario, proof bool) error {
	who, err := b.contenders()
	if err != nil {
		return err
	}
	if proof {
		if err := b.prove(ctx, who[1]); err != nil {
			return fmt.Errorf("%s on the sandbox: %w\n--- the end of its log ---\n%s", peer, err, who[1].LogTail())
		}
	}
	for _, sc := range chosen {
		b.say("%s: %s", sc.name, sc.about)
		for round := range b.cfg.Rounds {
			for _, c := range who {
				r := &run{bench: b, who: c, sc: sc, pods: sc.pods(), stop: func() {}}
				r.result = Result{Scenario: sc.name, Controller: c.name, Round: round + 1}
				if err := r.play(ctx); err != nil {
					if cause := context.Cause(ctx); cause != nil {
						err = cause
					}
					return fmt.Errorf("%s with %s, round %d: %w\n--- the end of its log ---\n%s", sc.name, c.name, round+1, err, c.LogTail())
				}
				rep.Results = append(rep.Results, r.result)
				b.say("  %s", r.result.line(sc))
			}
		}
	}
	return nil
}

// say prints a line with the time since the start.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.cfg.Out, "%7.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// up starts the sandbox and installs the CRDs.
func (b *bench) up(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(b.cfg.DataDir, "machines.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open a log: %w", err)
	}
	dir := filepath.Join(b.cfg.DataDir, "sandbox")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	b.stack, err = stack.Up(ctx, stack.Config{
		DataDir: dir, BootDelay: b.cfg.BootDelay, ShutdownDelay: time.Second, Seed: 1, SystemNode: true,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	if err := b.connect(ctx); err != nil {
		b.stack.Close()
		return err
	}
	e := b.stack.Endpoints
	b.say("kube-apiserver %s at %s, EC2 in %s at %s", b.stack.Version, e.APIServer, e.Region, e.EC2)
	return nil
}

func (b *bench) connect(ctx context.Context) error {
	scheme := apimeta.NewScheme()
	for _, add := range []func(*apimeta.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, schemas.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("learn the kinds: %w", err)
		}
	}
	var err error
	if b.client, err = client.NewWithWatch(b.stack.REST, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := b.installCRDs(ctx); err != nil {
		return err
	}
	// The SDK finds the simulator by the environment, as the controllers do.
	for _, kv := range b.stack.Endpoints.Environ() {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "AWS_") {
			if err := os.Setenv(name, value); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	b.cloud, err = ec2.New(ctx, ec2.Config{ClusterName: b.stack.Endpoints.ClusterName, DisableDryRun: true})
	return err
}
