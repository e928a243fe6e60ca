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
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/policies"
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

// Codes says what each code of this package means.
func Codes() map[string]string {
	return map[string]string{
		CodeTime:   "evaluating a cluster takes too long",
		CodeMemory: "evaluating a cluster takes too much memory",
		CodeCrash:  "the evaluator fails on a cluster",
		CodeSize:   "the tree, or what it evaluates to, is too large",
	}
}

// Options bound one evaluation. The zero value of each field stands for its default.
type Options struct {
	// Time is how much processor time an evaluation may take, to the second, and five
	// times as much on the clock, which on a machine with little else to do never comes to
	// bear; where the system can't count it, how long it may take. The default is 4 s,
	// and 80 ms more for each KiB of CUE up to a minute: a small tree that takes longer
	// is broken or hostile, a large one may just be large (1,000 NodePools are some
	// 110 KiB and take 2 s, and on a machine that others use as well three times that).
	Time time.Duration
	// Memory is how many bytes of data the child may have. The default is 512 MiB, and
	// 2 KiB more for each byte of CUE up to 4 GiB (1,000 NodePools take some 250 MiB,
	// 5,000 some 1,100 MiB).
	Memory int64
	// Executable is the program to run, by default the running one. It must call
	// Serve with its arguments.
	Executable string
	// Policies returns how the policies of a tree are to be applied; nil leaves them out.
	// It is called for each evaluation.
	Policies func() policies.Options
	// Read, if it isn't nil, gets the name and text of each file of CUE that is sent to
	// the child.
	Read func(name string, text []byte)
	// Validator returns who validates the objects of a cluster, while more of them are
	// evaluated; nil leaves that out. It is called for each cluster.
	Validator func() (*render.Validator, error)

	// report gets the rules of the tree, which are asked for instead of its objects.
	report func(*policies.Report)
}

const (
	baseTime      = 4 * time.Second
	timePerKiB    = 80 * time.Millisecond
	maxTime       = time.Minute
	baseMemory    = 512 << 20
	memoryPerByte = 2 << 10
	maxMemory     = 4 << 30
	answerLimit   = 128 << 20
)

// withDefaults fills in the limits for a tree with that many bytes of CUE.
func (o Options) withDefaults(text int64) (Options, error) {
	if o.Time == 0 {
		o.Time = min(maxTime, baseTime+time.Duration(text>>10)*timePerKiB)
	}
	if o.Memory == 0 {
		o.Memory = min(maxMemory, baseMemory+text*memoryPerByte)
	}
	if o.Executable == "" {
		var err error
		if o.Executable, err = os.Executable(); err != nil {
			return o, fmt.Errorf("find the running program: %w", err)
		}
	}
	return o, nil
}

// Check is render.Check with the evaluation in a child process. An error means that
// the evaluation couldn't be tried, or that ctx ended; everything that the tree
// itself is to blame for is a finding.
func Check(ctx context.Context, tree fs.FS, cluster string, j *admission.Judge, o Options) (render.Bundle, diag.List, error) {
	var r render.Result
	o.Validator = func() (*render.Validator, error) { return render.NewValidator(j, nil), nil }
	if err := Each(ctx, tree, []string{cluster}, o, func(x render.Result) { r = x }); err != nil {
		return render.Bundle{}, nil, err
	}
	return r.Bundle, append(render.Merge(r.Findings, r.Validated), r.Judged...).Sorted(), nil
}

// Render is render.Render in a child process, with errors as Check has.
func Render(ctx context.Context, tree fs.FS, cluster string, o Options) (b render.Bundle, findings diag.List, err error) {
	err = Each(ctx, tree, []string{cluster}, o, func(r render.Result) { b, findings = r.Bundle, r.Findings })
	return b, findings, err
}

// Each is render.Each in a child process, with errors as Check has. It calls done once
// for each cluster, in order, while the child goes on with the next. The limits hold for
// all clusters together. A cluster that is too much for them has a finding that says so,
// and so have those that there was no time left for.
func Each(ctx context.Context, tree fs.FS, clusters []string, o Options, done func(render.Result)) error {
	if len(clusters) == 0 {
		return nil
	}
	_, err := each(ctx, tree, clusters, o, done)
	return err
}

// each is Each that also tells the processor time of all children.
func each(ctx context.Context, tree fs.FS, clusters []string, o Options, done func(render.Result)) (used time.Duration, err error) {
	request, text, findings, err := pack(tree, clusters, o.Read)
	if err == nil {
		o, err = o.withDefaults(text)
	}
	if err != nil {
		return 0, err
	}
	fault := func(cluster string, f diag.Finding) {
		if !f.Pos.IsValid() {
			f.Pos = render.Place(tree, cluster)
		}
		done(render.Result{Bundle: render.Bundle{Cluster: cluster}, Findings: diag.List{f}})
	}
	if findings.HasErrors() {
		fault(clusters[0], findings[0])
		for _, c := range clusters[1:] {
			done(render.Result{Bundle: render.Bundle{Cluster: c}})
		}
		return 0, nil
	}
	if o.Policies != nil {
		p := o.Policies()
		request.header.Policies, request.header.Report = &p, o.report != nil
	}
	var unjudged diag.List
	for left := o.Time; len(clusters) > 0; {
		request.header.Clusters = clusters
		request.header.Memory = o.Memory
		request.header.CPU = int64((left + time.Second - 1) / time.Second) // The kernel counts whole seconds.
		end, err := run(ctx, request, left, o, func(r render.Result) {
			clusters = clusters[1:]
			r.Judged = append(r.Judged, unjudged...)
			done(r)
		})
		used += end.used
		switch {
		case ctx.Err() != nil:
			return used, fmt.Errorf("evaluate: %w", context.Cause(ctx))
		case err != nil:
			return used, err
		case end.fault == nil:
			return used, nil
		}
		left -= end.used
		if !end.begun && len(clusters) > 1 && left >= time.Second && !request.header.Alone {
			// It is one of those that were to be loaded together.
			request.header.Alone = true
			continue
		}
		if end.judging && end.fault.Code != CodeSize {
			// What is wrong with the objects is told all the same. A hostile tree gets little
			// time for it.
			unjudged = diag.List{ofPolicies(*end.fault, tree)}
			request.header.Policies = nil
			left = max(left, o.Time/4, time.Second)
			continue
		}
		if o.report != nil {
			*end.fault = ofPolicies(*end.fault, tree)
		}
		failed := clusters[0]
		clusters = clusters[1:]
		if len(clusters) > 0 && left < time.Second {
			end.fault.Message += fmt.Sprintf("; no time was left for %s", strings.Join(clusters, ", "))
		}
		fault(failed, *end.fault)
		if left < time.Second {
			for _, c := range clusters {
				done(render.Result{Bundle: render.Bundle{Cluster: c}})
			}
			return used, nil
		}
	}
	return used, nil
}

// ofPolicies blames a fault on the rules that a cluster was judged by.
func ofPolicies(f diag.Finding, tree fs.FS) diag.Finding {
	if f.Code == CodeSize {
		return f // of all that there is to say
	}
	f.Message = "the policies can't be applied: " + strings.ReplaceAll(f.Message, "the cluster", "the rules")
	f.Help = "look for nested comprehensions and large ranges in the rules; if the tree is just large, split it, or give more with --eval-time or --eval-memory"
	f.Pos = diag.Position{File: "policies"}
	if _, err := fs.Stat(tree, f.Pos.File); err != nil {
		f.Pos.File = "coppice.cue" // which applies the library's
	}
	return f
}

// Report tells of the rules of a tree, which of them apply to which clusters, and how
// their cases come out. What is wrong with the tree as a whole is a finding of the report.
func Report(ctx context.Context, tree fs.FS, clusters []string, o Options) (report *policies.Report, err error) {
	if len(clusters) == 0 {
		clusters = []string{""}
	}
	var faults diag.List
	o.report = func(r *policies.Report) { report = r }
	_, err = each(ctx, tree, clusters, o, func(r render.Result) { faults = append(faults, r.Findings...) })
	if report == nil {
		report = &policies.Report{Findings: faults}
	}
	return report, err
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
