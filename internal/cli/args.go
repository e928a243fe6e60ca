package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// maxInput bounds what is read of one file or of standard input, in bytes: thousands of
// objects with all that a server adds to them. A device has no end.
const maxInput = 64 << 20

// readInput reads a file that was named on the command line, - for standard input. The
// error names the file once and says what to do.
func readInput(s Streams, file string) ([]byte, error) {
	in := s.In
	name := "standard input"
	if file != "-" {
		name = file
		f, err := os.Open(file)
		var info fs.FileInfo
		if err == nil {
			defer f.Close()
			info, err = f.Stat()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, usagef("there is no file %s", file)
		case err != nil:
			return nil, unreadable(name, err)
		case info.IsDir():
			return nil, usagef("%s is a folder: name the files in it, as in %s/*.yaml", file, strings.TrimSuffix(slashed(file), "/"))
		}
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return nil, unreadable(name, err)
	case len(text) > maxInput:
		return nil, usagef("%s holds more than %d MiB: split it", name, maxInput>>20)
	}
	return text, nil
}

// unreadable says why a file can't be read.
func unreadable(name string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err // It names the file once more.
	}
	return &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s: %w", name, err)}
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
