package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// controller is "coppice controller" in a process of its own, one after another.
type controller struct {
	path    string
	env     []string
	log     string
	metrics string
	// failed gets an error when the process ends without being told to.
	failed chan<- error

	process *process
}

// process is one run of the controller.
type process struct {
	cmd *exec.Cmd
	// done is closed when it has ended.
	done chan struct{}
	// expected is set before it is ended on purpose.
	expected atomic.Bool
}

const (
	// namespace holds the NodeSource, its Secret and the controller's Lease.
	namespace = "coppice-system"
	// leaseDuration is how long a dead leader's lease holds up the next one. The
	// default of 15 s would be a fifth of the demo.
	leaseDuration = 6 * time.Second
	// stopLimit bounds how long the controller may take to end.
	stopLimit = 5 * time.Second
	logLines  = 30
)

// newController makes ready to run coppice; it finds the cluster and AWS by the
// environment alone, as it would in a pod.
func newController(path, dir string, lease time.Duration, e endpoints.Endpoints, failed chan<- error) (*controller, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return &controller{
		path:    path,
		log:     filepath.Join(dir, "coppice.log"),
		metrics: addr,
		failed:  failed,
		env: append(e.Environ(),
			"PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir(),
			"LEADER_ELECTION_NAMESPACE="+namespace,
			"LEADER_ELECTION_LEASE_DURATION="+lease.String(),
			"METRICS_BIND_ADDRESS="+addr, "HEALTH_PROBE_BIND_ADDRESS=0", "SECURE_BIND_ADDRESS=0",
		),
	}, nil
}

// freeAddress finds a port that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// output runs coppice with other arguments and returns what it prints.
func (c *controller) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Env = c.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run coppice %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// start starts the controller. Its log goes on where it was.
func (c *controller) start() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the controller's log: %w", err)
	}
	p := &process{cmd: exec.Command(c.path, "controller"), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = c.env, log, log
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The child is told of its parent's death when the thread ends that
		// started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close() // written by the child alone
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if err = p.cmd.Wait(); err == nil {
			err = errors.New("exit status 0")
		}
		if !p.expected.Load() {
			c.failed <- fmt.Errorf("coppice controller ended by itself: %w", err)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start coppice controller: %w", err)
	}
	c.process = p
	return nil
}

// pid is the process's number.
func (c *controller) pid() int { return c.process.cmd.Process.Pid }

// kill ends the controller at once, with no chance to tidy up.
func (c *controller) kill() {
	c.process.expected.Store(true)
	_ = c.process.cmd.Process.Kill() // it may have ended by itself
	<-c.process.done
}

// stop asks the controller to end, and makes it.
func (c *controller) stop() {
	if c.process == nil {
		return
	}
	c.process.expected.Store(true)
	_ = c.process.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-c.process.done:
	case <-limit.C:
		c.kill()
	}
}

func (c *controller) logPath() string    { return c.log }
func (c *controller) metricsURL() string { return "http://" + c.metrics + "/metrics" }

// logTail is the end of the log, without what controllers say when they start.
func (c *controller) logTail() string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	// Of every start there are some twenty lines that say no more than this.
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"msg":"Starting `) })
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}
