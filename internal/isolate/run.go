package isolate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
)

// run evaluates a request in a child. A fault is what the tree is to blame for;
// its position is left to the caller. used is the child's processor time.
func run(ctx context.Context, r *request, o Options) (a answer, fault *diag.Finding, used time.Duration, err error) {
	r.header.Memory = o.Memory
	// The kernel counts whole seconds.
	r.header.CPU = int64((o.Time + time.Second - 1) / time.Second)
	in, err := r.open()
	if err != nil {
		return answer{}, nil, 0, err
	}
	limited, cancel := context.WithTimeout(ctx, wallFactor*o.Time)
	defer cancel()
	cmd := exec.CommandContext(limited, o.Executable, childArg)
	cmd.Env = []string{}
	cmd.Dir = os.TempDir()
	cmd.Stdin = in
	stdout, stderr := &bounded{limit: answerLimit, full: cancel}, &bounded{limit: 64 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// A killed child's pipes are closed; nobody else has them.
	cmd.WaitDelay = time.Second
	attach(cmd)

	// The death of the thread that started the child is what kills the child with
	// its parent, so that the thread has to live as long.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if cmd.ProcessState != nil {
		used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}

	var exit *exec.ExitError
	switch {
	case stdout.over:
		return answer{}, &diag.Finding{
			Code: CodeSize, Message: fmt.Sprintf("the tree's objects take more than %d MiB", answerLimit>>20),
			Help: "look for a comprehension or a string that grows without need",
		}, used, nil
	case errors.Is(limited.Err(), context.DeadlineExceeded), killed(err) && used > o.Time/2:
		return answer{}, tookTooLong(o.Time), used, nil
	case killed(err) && ctx.Err() == nil, errors.As(err, &exit) && peakMemory(exit) > o.Memory/2:
		// Either the system ran out of memory before the child did, or the child died
		// with much of its own in use: Go's runtime doesn't always get to say why.
		return answer{}, crashed("out of memory", o.Memory), used, nil
	case errors.As(err, &exit):
		return answer{}, crashed(stderr.String(), o.Memory), used, nil
	case err != nil:
		return answer{}, nil, used, fmt.Errorf("run %s: %w", o.Executable, err)
	}
	if err := json.Unmarshal(stdout.Bytes(), &a); err != nil {
		return answer{}, nil, used, fmt.Errorf("read the answer of %s: %w", o.Executable, err)
	}
	return a, nil, used, nil
}

func tookTooLong(limit time.Duration) *diag.Finding {
	return &diag.Finding{
		Code:    CodeTime,
		Message: fmt.Sprintf("evaluating the tree takes longer than %s", limit.Round(100*time.Millisecond)),
		Help:    "look for disjunctions of structs, nested comprehensions and values that double at every step; if the tree is just large, split it",
	}
}

// crashed explains the end of a child by what Go's runtime last said.
func crashed(said string, memory int64) *diag.Finding {
	switch {
	case strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"), strings.Contains(said, "failed to create new OS thread"):
		return &diag.Finding{
			Code:    CodeMemory,
			Message: fmt.Sprintf("evaluating the tree takes more than %d MiB of memory", memory>>20),
			Help:    "look for large ranges, and for strings, lists and structs that double at every step",
		}
	case strings.Contains(said, "stack exceeds"), strings.Contains(said, "stack overflow"):
		return &diag.Finding{
			Code:    CodeCrash,
			Message: "values in the tree nest too deep to be evaluated",
			Help:    "look for deeply nested expressions and definitions that refer to themselves",
		}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return &diag.Finding{
		Code:    CodeCrash,
		Message: "the evaluator failed on the tree: " + strings.ToValidUTF8(strings.TrimSpace(first), "?"),
		Help:    "vet the tree on your machine to find the part that it fails on",
	}
}

// bounded keeps what is written to it up to a limit, and drops the rest.
type bounded struct {
	bytes.Buffer
	limit int
	over  bool
	full  func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.over = b.over || b.Len()+len(p) > b.limit; !b.over {
		return b.Buffer.Write(p)
	}
	if b.full != nil {
		b.full()
	}
	return len(p), nil
}
