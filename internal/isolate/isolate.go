// Package isolate evaluates trees that nobody vouches for. CUE is a language in
// which a few lines can ask for more time and memory than any machine has, and its
// evaluator can neither be cancelled nor told to stop; so it runs in a child
// process of the same binary, which is given the text of the tree over its standard
// input and nothing else: no environment, no files, no network that it would know of.
// The child is killed when its time is up, and where the system can do it (Linux),
// the kernel bounds its memory and processor time and kills it with its parent.
//
// The child only evaluates. What it returns is data, which the parent checks against
// the CRDs itself.
//
// A program that uses this package begins with
//
//	if code, ok := isolate.Serve(os.Args[1:], os.Stdin, os.Stdout); ok {
//		os.Exit(code)
//	}
package isolate

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

// The codes of this package's findings.
const (
	// CodeTime marks a tree whose evaluation took too long.
	CodeTime = "EVAL001"
	// CodeMemory marks a tree whose evaluation needed too much memory.
	CodeMemory = "EVAL002"
	// CodeCrash marks a tree that the evaluator failed on.
	CodeCrash = "EVAL003"
	// CodeSize marks a tree, or its objects, that are too large to pass on.
	CodeSize = "EVAL004"
)

// Options bound one evaluation. The zero value of each field stands for its default.
type Options struct {
	// Time is how much processor time an evaluation may take, to the second, and three
	// times as much on the clock; where the system can't count it, how long it may take.
	// The default is 4 s, and 10 ms more for each KiB of CUE: a small tree that takes
	// longer is broken or hostile, a large one may just be large (1,000 NodePools are
	// some 130 KiB and take about 2 s).
	Time time.Duration
	// Memory is how many bytes of data the child may have, 512 MiB by default.
	Memory int64
	// Executable is the program to run, by default the running one. It must call
	// Serve with its arguments.
	Executable string
}

const (
	baseTime    = 4 * time.Second
	timePerKiB  = 10 * time.Millisecond
	dataLimit   = 512 << 20
	answerLimit = 128 << 20
)

// Check is render.Check with the evaluation in a child process. An error means that
// the evaluation couldn't be tried, or that ctx ended; everything that the tree
// itself is to blame for is a finding.
func Check(ctx context.Context, tree fs.FS, cluster string, j *admission.Judge, o Options) (render.Bundle, diag.List, error) {
	b, findings, err := Render(ctx, tree, cluster, o)
	if err != nil {
		return render.Bundle{}, nil, err
	}
	return b, render.Merge(findings, render.Validate(b, j)), nil
}

// Render is render.Render in a child process, with errors as Check has.
func Render(ctx context.Context, tree fs.FS, cluster string, o Options) (render.Bundle, diag.List, error) {
	b, findings, _, err := evaluate(ctx, tree, cluster, o)
	return b, findings, err
}

// evaluate is Render that also tells the child's processor time.
func evaluate(ctx context.Context, tree fs.FS, cluster string, o Options) (render.Bundle, diag.List, time.Duration, error) {
	nothing := render.Bundle{Cluster: cluster}
	request, text, findings, err := pack(tree, cluster)
	if err != nil || findings.HasErrors() {
		return nothing, findings, 0, err
	}
	if o.Time == 0 {
		o.Time = baseTime + time.Duration(text>>10)*timePerKiB
	}
	if o.Memory == 0 {
		o.Memory = dataLimit
	}
	if o.Executable == "" {
		if o.Executable, err = os.Executable(); err != nil {
			return nothing, nil, 0, fmt.Errorf("find the running program: %w", err)
		}
	}
	answer, fault, used, err := run(ctx, request, o)
	switch {
	case ctx.Err() != nil:
		return nothing, nil, used, fmt.Errorf("evaluate: %w", context.Cause(ctx))
	case err != nil:
		return nothing, nil, used, err
	case fault != nil:
		fault.Pos = diag.Position{File: place(tree, cluster)}
		return nothing, diag.List{*fault}, used, nil
	}
	return answer.Bundle, answer.Findings, used, nil
}

// place is the folder that a finding about the whole evaluation stands at.
func place(tree fs.FS, cluster string) string {
	if cluster != "" {
		return "clusters/" + cluster
	}
	if names, err := render.Clusters(tree); err == nil && len(names) == 1 && names[0] != "" {
		return "clusters/" + names[0]
	}
	return "."
}

// NewEvaluator compiles the CRDs of this binary and returns Check with them and
// with options, as a function that can be used at the same time from several goroutines.
func NewEvaluator(o Options) (func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error), error) {
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return nil, fmt.Errorf("compile CRDs: %w", err)
	}
	return func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
		return Check(ctx, tree, cluster, judge, o)
	}, nil
}
