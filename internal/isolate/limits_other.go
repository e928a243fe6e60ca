//go:build !linux

package isolate

import "os/exec"

// restrict does nothing: on this system the child is bounded by time alone.
func restrict(memory, cpu int64) error { return nil }

// attach does nothing: a child whose parent is gone ends with its own time.
func attach(cmd *exec.Cmd) {}

// wallFactor is 1 where the clock is the only limit.
const wallFactor = 1

// killed is for systems where the kernel counts a child's processor time.
func killed(err error) bool { return false }

// peakMemory is for systems where the kernel bounds a child's memory.
func peakMemory(exit *exec.ExitError) int64 { return 0 }
