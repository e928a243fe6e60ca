package cli

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// controllerGarbage is how many per cent of what is in use garbage may add before it is
	// collected. The controller's memory is what its cache of pods holds, which changes
	// little: at rest a collection every few minutes costs nothing, and memory is paid for
	// all day.
	controllerGarbage = 50
	// limitShare is how much of the container's memory, in per cent, the collector tries
	// to stay within; the rest is for what it doesn't count. Karpenter's value.
	limitShare = 90
)

// boundMemory sets how hard the collector works. limit is the container's memory in bytes,
// 0 for none, below that what root says, the root of the file system in which cgroups are
// mounted. GOGC and GOMEMLIMIT win.
func boundMemory(limit int64, root string) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(controllerGarbage)
	}
	if limit < 0 {
		limit = cgroupLimit(root)
	}
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 100 * limitShare)
	}
}

// cgroupLimit is the memory that the container may have, in bytes, 0 for any amount. A
// container sees its own cgroup at the top, of version 2 or else 1.
func cgroupLimit(root string) int64 {
	for _, path := range []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			continue // not this version, or no cgroups at all
		}
		// Version 2 says "max" for none, and 1 a number that no machine has.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < 1<<50 {
			return n
		}
		return 0
	}
	return 0
}
