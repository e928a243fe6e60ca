package isolate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

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
	// Collecting garbage early is what costs most near the limit; far from it,
	// collecting late is what saves most. The kernel counts more than Go's heap.
	debug.SetGCPercent(200)
	debug.SetMemoryLimit(h.Memory * 3 / 4)
	// A stack grows to 1 GiB by default before Go gives up on a recursion.
	debug.SetMaxStack(64 << 20)
	if err := restrict(h.Memory, h.CPU); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	var a answer
	a.Bundle, a.Findings = render.Render(tree, h.Cluster)
	w := bufio.NewWriter(out)
	if err := json.NewEncoder(w).Encode(a); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return w.Flush()
}
