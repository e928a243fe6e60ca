package isolate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// restrict makes the kernel bound this process: the bytes of its memory, its seconds
// of processor time, and that it writes no file and no core.
func restrict(memory, cpu int64) error {
	// Where there is too little for both, the kernel shall take this process and not
	// its parent. Without /proc it decides by size, which comes to the same.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	addresses := uint64(unix.RLIM_INFINITY)
	if now, ok := addressSpace(); ok {
		addresses = now + uint64(memory) + reserve
	}
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		// Go maps a large allocation over addresses that it has reserved, which the kernel
		// doesn't count as more data: it is the reservation that has to be bounded.
		{"address space", unix.RLIMIT_AS, addresses},
		{"data", unix.RLIMIT_DATA, uint64(memory)},
		{"cpu", unix.RLIMIT_CPU, uint64(cpu)},
		{"core", unix.RLIMIT_CORE, 0},
		{"file size", unix.RLIMIT_FSIZE, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// reserve is what Go may reserve beyond what it uses: an arena of its heap, of 64 MiB.
const reserve = 64 << 20

// addressSpace is how many bytes of addresses this process has, most of which Go has
// only reserved. It isn't known without /proc.
func addressSpace() (uint64, bool) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	size, _, _ := strings.Cut(string(text), " ")
	pages, err := strconv.ParseUint(size, 10, 64)
	return pages * uint64(os.Getpagesize()), err == nil
}

// attach makes the child end with its parent.
func attach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// wallFactor is how many times an evaluation's processor time may pass on the clock:
// on a busy machine a good tree takes longer, but not more work.
const wallFactor = 5

// killed reports whether a child was ended by SIGKILL, which is what the kernel
// sends when its processor time is used up.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// peakMemory is how many bytes of memory a child had at most.
func peakMemory(exit *exec.ExitError) int64 {
	usage, ok := exit.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10
}
