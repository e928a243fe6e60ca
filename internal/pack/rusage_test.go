//go:build unix

package pack

import (
	"syscall"
	"time"
)

// cpuTime is the processor time that this process has used. On a busy machine it
// says more than the clock does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
