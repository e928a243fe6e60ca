package isolate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// ending is how a child came to its end.
type ending struct {
	// fault is what the tree is to blame for, nil if all clusters were answered. Its
	// position is left to the caller.
	fault *diag.Finding
	// begun says that the first cluster without an answer had been begun.
	begun bool
	// judging says that this cluster had been evaluated, and was judged by policies.
	judging bool
	// used is the child's processor time.
	used time.Duration
}

// lastWords bounds how long the reading may go on after a child's end. There is at most a
// pipe's content to read, 64 KiB.
const lastWords = 30 * time.Second

// run evaluates a request in a child, within limit, and passes on what it answers.
func run(ctx context.Context, r *request, limit time.Duration, o Options, done func(render.Result)) (end ending, err error) {
	in, err := r.open()
	if err != nil {
		return end, err
	}
	limited, cancel := context.WithTimeout(ctx, wallFactor*limit)
	defer cancel()
	cmd := exec.CommandContext(limited, o.Executable, childArg)
	cmd.Env = []string{}
	cmd.Dir = os.TempDir()
	cmd.Stdin = in
	stderr := &bounded{limit: 64 << 10}
	cmd.Stderr = stderr
	stdout, out := io.Pipe()
	cmd.Stdout = out
	// A dead child's pipes are closed; nobody else has them. What it wrote last may have to
	// wait until the objects before it are validated.
	cmd.WaitDelay = lastWords
	attach(cmd)

	// The child is run by a goroutine of its own, and so is the reading, so that
	// neither waits for what is done with an answer.
	ended := make(chan error, 1)
	go func() {
		// The death of the thread that started the child is what kills the child with
		// its parent, so that the thread has to live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Run()
		out.Close()
		ended <- err
	}()
	answers := make(chan answer, 3*len(r.header.Clusters)) // begun, judging, done
	var unread error
	go func() {
		unread = read(stdout, o.Validator, func(a answer) { answers <- a })
		if unread != nil {
			cancel()
			stdout.CloseWithError(unread)
		}
		close(answers)
	}()
	answered := 0
	for a := range answers {
		switch end.begun, end.judging = a.begun || a.judging, a.judging; {
		case a.begun, a.judging:
		case a.Report != nil:
			answered = len(r.header.Clusters)
			o.report(a.Report)
		default:
			answered++
			done(a.result())
		}
	}
	err = <-ended
	if cmd.ProcessState != nil {
		end.used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}

	if unread == nil && answered == len(r.header.Clusters) {
		return end, nil // whatever became of the child since
	}
	var exit *exec.ExitError
	switch {
	case errors.Is(unread, errTooLong):
		end.fault = &diag.Finding{
			Code: CodeSize, Message: fmt.Sprintf("the cluster's objects take more than %d MiB", answerLimit>>20),
			Help: "look for a comprehension or a string that grows without need",
		}
	case errors.Is(limited.Err(), context.DeadlineExceeded), killed(err) && end.used > limit/2:
		end.used = max(end.used, limit)
		end.fault = tookTooLong(o.Time)
	case killed(err) && ctx.Err() == nil, errors.As(err, &exit) && peakMemory(exit) > o.Memory/2:
		// Either the system ran out of memory before the child did, or the child died
		// with much of its own in use: Go's runtime doesn't always get to say why.
		end.fault = crashed("out of memory", o.Memory)
	case errors.As(err, &exit):
		end.fault = crashed(stderr.String(), o.Memory)
	case err != nil:
		return end, fmt.Errorf("run %s: %w", o.Executable, err)
	case unread != nil:
		return end, fmt.Errorf("read the answer of %s: %w", o.Executable, unread)
	default:
		return end, fmt.Errorf("read the answer of %s: it ends after %d of %d clusters", o.Executable, answered, len(r.header.Clusters))
	}
	return end, nil
}

func tookTooLong(limit time.Duration) *diag.Finding {
	return &diag.Finding{
		Code:    CodeTime,
		Message: fmt.Sprintf("evaluating the cluster takes longer than %s", limit.Round(100*time.Millisecond)),
		Help:    "look for disjunctions of structs, nested comprehensions and values that double at every step; if the tree is just large, split it, or give more with --eval-time",
	}
}

// crashed explains the end of a child by what Go's runtime last said.
func crashed(said string, memory int64) *diag.Finding {
	switch {
	case strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"), strings.Contains(said, "failed to create new OS thread"):
		return &diag.Finding{
			Code:    CodeMemory,
			Message: fmt.Sprintf("evaluating the cluster takes more than %d MiB of memory", memory>>20),
			Help:    "look for large ranges, and for strings, lists and structs that double at every step; if the tree is just large, split it, or give more with --eval-memory",
		}
	case strings.Contains(said, "stack exceeds"), strings.Contains(said, "stack overflow"):
		return &diag.Finding{
			Code:    CodeCrash,
			Message: "values of the cluster nest too deep to be evaluated",
			Help:    "look for deeply nested expressions and definitions that refer to themselves",
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return &diag.Finding{
		Code:    CodeCrash,
		Message: "the evaluator failed on the cluster: " + strings.ToValidUTF8(strings.TrimSpace(first), "?"),
		Help:    "vet the tree on your machine to find the part that it fails on",
	}
}

// bounded keeps what is written to it up to a limit, and drops the rest.
type bounded struct {
	bytes.Buffer
	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) <= b.limit {
		return b.Buffer.Write(p)
	}
	return len(p), nil
}
