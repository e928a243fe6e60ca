package isolate

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/render"
)

// childArg is the only argument of a child.
const childArg = "evaluate-tree-of-stdin"

// Serve does a child's work if args say that this process is one, and returns
// its exit code.
func Serve(args []string, in io.Reader, out io.Writer) (code int, ok bool) {
	if len(args) != 1 || args[0] != childArg {
		return 0, false
	}
	if err := serve(in, out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func serve(in io.Reader, out io.Writer) error {
	h, tree, err := unpack(in)
	if err != nil {
		return err
	}
	// The kernel counts more than Go does: what was mapped and given back, and the
	// program's own data, which together come to a quarter and more.
	debug.SetMemoryLimit(h.Memory * 5 / 8)
	collectRarely()
	// A stack grows to 1 GiB by default before Go gives up on a recursion.
	debug.SetMaxStack(64 << 20)
	if err := restrict(h.Memory, h.CPU); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	to := &sender{w: bufio.NewWriterSize(out, 32<<10)}
	var judge *policies.Checker
	if h.Policies != nil {
		judge = policies.New(tree, *h.Policies)
		if !h.Report {
			judge.Prepare()
		}
	}
	if h.Report {
		to.done(answer{Report: judge.Report(h.Clusters)})
		h.Clusters = nil
	}
	render.Each(tree, h.Clusters, h.Alone, render.Progress{
		Begun: to.begun, Object: to.object,
		Done: func(r render.Result) {
			if judge != nil {
				to.frame(frameJudging, nil)
			}
			to.flush()
			if judge != nil {
				r.Judged = judge.Check(r.Bundle, r.Findings)
				r.Rules = judge.Describe(r.Judged)
			}
			a := answer{Cluster: r.Bundle.Cluster, Findings: r.Findings, Judged: r.Judged, Rules: r.Rules, Files: r.Files}
			if len(r.Bundle.Objects) == to.objects {
				a.Objects = to.objects
			}
			to.done(a)
		},
	})
	err = to.err
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
