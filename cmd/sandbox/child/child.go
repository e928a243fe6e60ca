// Package child runs programs beside the sandbox: the controllers that the demo
// and the comparison watch. A child logs to a file, ends with its parent, and its
// unexpected end is an error.
package child

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
)

// Program is a program that is run in processes of its own, one after another.
type Program struct {
	// Path and Args are what is run, Env is its whole environment.
	Path string
	Args []string
	Env  []string
	// Log is the file that its output is appended to.
	Log string
	// Failed gets an error when a process ends without being told to. It needs
	// room for each time that the program is started.
	Failed chan<- error

	process *process
}

// process is one run of a program.
type process struct {
	cmd *exec.Cmd
	// done is closed when it has ended.
	done chan struct{}
	// expected is set before it is ended on purpose.
	expected atomic.Bool
}

const (
	// stopLimit bounds how long a program may take to end.
	stopLimit = 5 * time.Second
	logLines  = 30
)

// FreeAddress finds a loopback port that nobody listens on.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// String is how the program is called in messages.
func (p *Program) String() string {
	return strings.Join(append([]string{filepath.Base(p.Path)}, p.Args...), " ")
}

// Output runs the program with other arguments and returns what it prints.
func (p *Program) Output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Env = p.Env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s %s: %w: %s", filepath.Base(p.Path), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// Start starts the program. Its log goes on where it was.
func (p *Program) Start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p, err)
	}
	run := &process{cmd: exec.Command(p.Path, p.Args...), done: make(chan struct{})}
	run.cmd.Env, run.cmd.Stdout, run.cmd.Stderr = p.Env, log, log
	run.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The child is told of its parent's death when the thread ends that
		// started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(run.done)
		defer log.Close() // written by the child alone
		err := run.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if err = run.cmd.Wait(); err == nil {
			err = errors.New("exit status 0")
		}
		if !run.expected.Load() {
			p.Failed <- fmt.Errorf("%s ended by itself: %w", p, err)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p, err)
	}
	p.process = run
	return nil
}

// PID is the number of the process that was started last.
func (p *Program) PID() int { return p.process.cmd.Process.Pid }

// Kill ends the process at once, with no chance to tidy up.
func (p *Program) Kill() {
	p.process.expected.Store(true)
	_ = p.process.cmd.Process.Kill() // it may have ended by itself
	<-p.process.done
}

// Stop asks the process to end, and makes it. It does nothing if the program was
// never started.
func (p *Program) Stop() {
	if p.process == nil {
		return
	}
	p.process.expected.Store(true)
	_ = p.process.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-p.process.done:
	case <-limit.C:
		p.Kill()
	}
}

// LogTail is the end of the log, without what controllers say when they start.
func (p *Program) LogTail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	// Of every start there are some twenty lines that say no more than this.
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"Starting `) })
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}
