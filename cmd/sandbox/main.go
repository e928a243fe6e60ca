// Command sandbox runs a whole small cloud on one machine: a Kubernetes control
// plane, the EC2 simulator whose machines become nodes, and a Git server. It is for
// trying Coppice, for its demo and for its tests; no account and no container
// runtime is needed, and nothing listens beyond 127.0.0.1.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Exit codes, as those of coppice itself.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	// A seventh of all processor time went to collecting garbage; memory is the
	// cheaper of both here.
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.Stdout, ownStderr()))
}

const gcPercent = 200

// usageError is a command line that makes no sense.
type usageError struct{ error }

// noArguments refuses arguments as a mistake in usage.
func noArguments(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
}

// run runs one command line and returns the exit code.
func run(args []string, stdout io.Writer, stderr *os.File) int {
	root := &cobra.Command{
		Use:           "sandbox",
		Short:         "Run a Kubernetes control plane, an EC2 simulator and a Git server on this machine",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(upCommand(stdout, stderr), demoCommand(stdout, stderr), compareCommand(stdout, stderr), scaleCommand(stdout, stderr),
		ec2simCommand(stdout), ec2Command(stdout))

	ctx, stop := untilStopped(context.Background())
	defer stop()
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "sandbox: %v\nRun sandbox --help to see what there is.\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "sandbox: %v\n", err)
		return exitFailed
	}
}
