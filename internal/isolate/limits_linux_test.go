package isolate

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestOneLargeAllocation wants a child to have no more memory than it may, even if it
// asks for all of it at once, which the kernel doesn't count as it counts small parts.
func TestOneLargeAllocation(t *testing.T) {
	const memory = 512 << 20
	r, _, findings, err := pack(tree(map[string]string{
		"a.cue": "package cluster\n\nimport (\"list\", \"strings\")\n\nl: strings.Repeat(\"x\", 1000000)\nx: strings.Join(list.Repeat([l], 1500), \"\")\n",
	}), []string{""}, nil)
	if err != nil || findings.HasErrors() {
		t.Fatal(err, findings)
	}
	r.header.Clusters, r.header.Memory, r.header.CPU = []string{""}, memory, 30
	in, err := r.open()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], childArg)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stderr = []string{}, in, &stderr
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "out of memory") {
		t.Errorf("ended with %v: %.200s", err, &stderr)
	}
	if peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; peak > memory {
		t.Errorf("had %d MiB at its peak, of %d MiB", peak>>20, memory>>20)
	}
}
