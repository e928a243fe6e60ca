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
	"syscall"
	"time"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// controller is "coppice controller" in a process of its own.
type controller struct {
	path    string
	env     []string
	log     string
	metrics string

	cmd *exec.Cmd
	// done is closed when the process has ended, err is then how.
	done chan struct{}
	err  error
	// expected is set before the process is ended on purpose.
	expected bool
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
func newController(path, dir string, lease time.Duration, e endpoints.Endpoints) (*controller, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return &controller{
		path:    path,
		log:     filepath.Join(dir, "coppice.log"),
		metrics: addr,
		env: append(e.Environ(),
			"PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "TMPDIR="+os.TempDir(),
			"LEADER_ELECTION_NAMESPACE="+namespace,
			"LEADER_ELECTION_LEASE_DURATION="+lease.String(),
			"METRICS_BIND_ADDRESS="+addr, "HEALTH_PROBE_BIND_ADDRESS=0",
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
	cmd := exec.Command(c.path, "controller")
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	cmd.SysProcAttr = dieWithParent()
	started, done := make(chan error), make(chan struct{})
	c.cmd, c.done, c.expected = cmd, done, false
	go func() {
		// The child is told of its parent's death when the thread ends that
		// started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
		_ = log.Close()
		close(done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start coppice controller: %w", err)
	}
	return nil
}

// ended yields an error if the controller ends without being told to. It works on
// a controller that is nil or not started, which never ends.
func (c *controller) ended() <-chan error {
	out := make(chan error, 1)
	if c == nil || c.done == nil {
		return out
	}
	done := c.done
	go func() {
		<-done
		if done == c.done && !c.expected {
			out <- errors.Join(c.err, errors.New("see its log"))
		}
	}()
	return out
}

// kill ends the controller at once, with no chance to tidy up.
func (c *controller) kill() {
	c.expected = true
	_ = c.cmd.Process.Kill()
	<-c.done
}

// stop asks the controller to end, and makes it.
func (c *controller) stop() {
	if c.done == nil {
		return
	}
	c.expected = true
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		_ = c.cmd.Process.Kill()
		<-c.done
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
