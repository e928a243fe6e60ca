package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/coppice-dev/coppice/cmd/sandbox/child"
	"github.com/coppice-dev/coppice/cmd/sandbox/meter"
	"github.com/coppice-dev/coppice/cmd/sandbox/stack"
	"github.com/coppice-dev/coppice/schemas"
)

// Config says how far the sandbox is to grow.
type Config struct {
	// Coppice is the path of the coppice program.
	Coppice string
	// DataDir holds the sandbox's data and all logs. It must exist and be empty.
	DataDir string
	// Nodes and Pods are how many there are to be; Pods is a multiple of Nodes, from one
	// to a node to PodsPerNode.
	Nodes, Pods int
	// Bound creates the nodes and the pods on them at once, so that neither planner nor
	// scheduler has to find their places: what rest costs can be measured on a slow machine.
	Bound bool
	// BootDelay is how long machines boot. All that are launched within it come at once.
	BootDelay time.Duration
	// Settle is how long the controller is left alone after the growth, and Rest how long
	// it is then measured.
	Settle, Rest time.Duration
	Out          io.Writer
}

// PodsPerNode is the most pods to a node that the requests can be told apart for.
const PodsPerNode = 100

// Validate says what about the configuration makes no sense.
func (c Config) Validate() error {
	switch {
	case c.Nodes < 1 || c.Pods < c.Nodes || c.Pods > c.Nodes*PodsPerNode || c.Pods%c.Nodes != 0:
		return fmt.Errorf("%d pods on %d nodes: give each node the same number of pods, from 1 to %d", c.Pods, c.Nodes, PodsPerNode)
	case c.Rest <= 0 || c.Settle < 0 || c.BootDelay < 0:
		return errors.New("a time must not be negative, and the rest must be longer than nothing")
	}
	return nil
}

// nodeGrace is how long a node may be silent. Each kubelet tells of itself four times in
// four fifths of it; the default of 50 s would cost a hundred writes a second with a
// thousand nodes, which the controller has no part in.
const nodeGrace = 5 * time.Minute

// scrapePeriod is how often metrics are read, as Prometheus would.
const scrapePeriod = 15 * time.Second

// bench is a run.
type bench struct {
	cfg     Config
	stack   *stack.Stack
	client  client.WithWatch
	coppice child.Program
	metrics string
	failed  chan error
	began   time.Time
}

// Run grows the sandbox, lets it rest, and prints what was measured.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	b := &bench{cfg: cfg, failed: make(chan error, 1), began: time.Now()}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := b.up(ctx); err != nil {
		return err
	}
	defer b.stack.Close()
	defer b.coppice.Stop()
	go func() {
		select {
		case err := <-b.stack.Failed():
			fail(err)
		case err := <-b.failed:
			fail(err)
		case <-ctx.Done():
		}
	}()
	err := b.play(ctx)
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w\n--- the end of the controller's log ---\n%s", err, b.coppice.LogTail())
}

// play grows the cluster and lets it rest.
func (b *bench) play(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	from, err := meter.Read(b.coppice.PID())
	if err != nil {
		return err
	}
	started, _, err := meter.Memory(b.coppice.PID())
	if err != nil {
		return err
	}
	grow := b.grow
	if b.cfg.Bound {
		grow = b.fill
	}
	grown, err := grow(ctx)
	if err != nil {
		return err
	}
	to, err := meter.Read(b.coppice.PID())
	if err != nil {
		return err
	}
	_, peak, err := meter.Memory(b.coppice.PID())
	if err != nil {
		return err
	}
	b.say("%s", grown)
	b.say("under load: %s, %.0f MiB at most; %.0f MiB before", cores(from, to), peak, started)
	if err := b.sleep(ctx, b.cfg.Settle); err != nil {
		return err
	}
	return b.rest(ctx)
}

// rest measures while nothing happens but what always does: kubelets report, metrics are
// read.
func (b *bench) rest(ctx context.Context) error {
	from, err := meter.Read(b.coppice.PID())
	if err != nil {
		return err
	}
	highest := 0.0
	for end := time.Now().Add(b.cfg.Rest); time.Now().Before(end); {
		if err := b.sleep(ctx, min(scrapePeriod, time.Until(end))); err != nil {
			return err
		}
		now, _, err := meter.Memory(b.coppice.PID())
		if err != nil {
			return err
		}
		highest = max(highest, now)
		if err := b.scrape(ctx); err != nil {
			return err
		}
	}
	to, err := meter.Read(b.coppice.PID())
	if err != nil {
		return err
	}
	mapped, err := meter.Mapped(b.coppice.PID())
	if err != nil {
		return err
	}
	b.say("at rest: %s, %.0f MiB, of which %.0f are pages of the program", cores(from, to), highest, mapped)
	return b.profile(ctx)
}

// cores is how many cores a process used between two readings.
func cores(from, to meter.Reading) string {
	took := to.At.Sub(from.At)
	return fmt.Sprintf("%.3f cores over %.0f s (%.1f s of processor time; others used %.0f %% of the machine)",
		(to.Own-from.Own).Seconds()/took.Seconds(), took.Seconds(), (to.Own - from.Own).Seconds(), 100*meter.OtherLoad(from, to))
}

// profile keeps a profile of the controller's heap, to be read with go tool pprof.
func (b *bench) profile(ctx context.Context) error {
	var body bytes.Buffer
	if err := b.read(ctx, "/debug/pprof/heap", &body); err != nil {
		return err
	}
	path := filepath.Join(b.cfg.DataDir, "heap.pprof")
	if err := os.WriteFile(path, body.Bytes(), 0o600); err != nil {
		return fmt.Errorf("keep the heap's profile: %w", err)
	}
	return nil
}

// scrape reads the metrics once.
func (b *bench) scrape(ctx context.Context) error { return b.read(ctx, "/metrics", io.Discard) }

// read copies what the controller's metrics server has at a path.
func (b *bench) read(ctx context.Context, path string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+path, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(to, resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: %s", path, resp.Status)
	}
	return nil
}

// say prints a line with the time since the start.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.cfg.Out, "%7.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// up starts the sandbox, and makes ready to run the controller.
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
		DataDir: dir, BootDelay: b.cfg.BootDelay, ShutdownDelay: time.Second, Seed: 1, NodeGrace: nodeGrace,
		// EC2's limits would let the nodes of a small account drip in.
		Unthrottled: true,
		Log:         slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return errors.Join(err, log.Close())
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, schemas.AddToScheme} {
		if err := add(scheme); err != nil {
			b.stack.Close()
			return fmt.Errorf("learn the kinds: %w", err)
		}
	}
	if b.client, err = client.NewWithWatch(b.stack.REST, client.Options{Scheme: scheme}); err != nil {
		b.stack.Close()
		return fmt.Errorf("make a client: %w", err)
	}
	if b.metrics, err = child.FreeAddress(); err != nil {
		b.stack.Close()
		return err
	}
	e := b.stack.Endpoints
	b.coppice = child.Program{
		Path: b.cfg.Coppice, Args: []string{"controller"}, Log: filepath.Join(b.cfg.DataDir, "coppice.log"), Failed: b.failed,
		Env: append(e.Environ(),
			"PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir(), "INTERRUPTION_QUEUE="+e.Queue,
			"LEADER_ELECT=false", "ENABLE_PROFILING=true", "METRICS_BIND_ADDRESS="+b.metrics, "HEALTH_PROBE_BIND_ADDRESS=0", "SECURE_BIND_ADDRESS=0"),
	}
	b.say("kube-apiserver %s at %s, EC2 in %s at %s", b.stack.Version, e.APIServer, e.Region, e.EC2)
	return nil
}
