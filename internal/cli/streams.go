package cli

import (
	"io"
	"os"
	"runtime/debug"

	"k8s.io/utils/clock"
)

// Streams are what a command reads and writes instead of the process's own.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Clock is the time that the controller goes by; nil means real time.
	Clock clock.WithTicker
}

// Exit codes. Scripts depend on them.
const (
	ExitOK      = 0
	ExitFailed  = 1 // something outside of the input went wrong
	ExitUsage   = 2 // the command line makes no sense
	ExitInvalid = 3 // the input is invalid, or a policy denies it
	ExitChanges = 4 // changes or drift were found, and asked for as a failure
)

// ExitError ends a command with a code. Without Err nothing more is printed:
// the command has already said what there is to say.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// collectLater lets garbage grow to twice what is in use before it is collected.
// A command that judges a tree and ends has no use for the memory, which it has after
// the child that evaluated the tree has given back more; a tenth of its time would go
// into collecting. Who sets GOGC decides.
func collectLater() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// color reports whether to print ANSI colours: on a terminal, unless the user
// said otherwise (no-color.org).
func (s Streams) color() bool {
	f, ok := s.Out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
