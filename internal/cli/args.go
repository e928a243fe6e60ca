package cli

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/isolate"
)

// usagef is an error in the command line.
func usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// exactArgs wants n arguments and says what they are if there aren't.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s; see '%s --help'", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// slashed is a path of this system as findings show it.
func slashed(name string) string { return filepath.ToSlash(filepath.Clean(name)) }

// limits are the flags that bound the evaluation of a tree.
type limits struct {
	time   time.Duration
	memory int64
}

const (
	evalTimeUsage   = "how much processor time evaluating a tree may take (default 4s, and 80ms more for each KiB of CUE)"
	evalMemoryUsage = "how many `MiB` of memory evaluating a tree may take (default 512, and 2 more for each KiB of CUE)"
)

func (l *limits) flags(f *pflag.FlagSet) {
	f.DurationVar(&l.time, "eval-time", 0, evalTimeUsage)
	f.Int64Var(&l.memory, "eval-memory", 0, evalMemoryUsage)
}

func (l limits) options() (isolate.Options, error) {
	if l.time < 0 || l.memory < 0 {
		return isolate.Options{}, usagef("--eval-time %s, --eval-memory %d: give more than nothing", l.time, l.memory)
	}
	return isolate.Options{Time: l.time, Memory: l.memory << 20}, nil
}
