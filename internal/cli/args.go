package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
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
