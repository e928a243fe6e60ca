// Package cli holds the commands: what they are called, what they read and print,
// and how they exit. It decides nothing that another package could.
//
// A command parses flags into an options struct and hands it to a function that
// does the work. Results go to stdout, talk to stderr. A command ends with one of
// the exit codes of streams.go.
package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/isolate"
)

// Main runs the command that args name and returns the process's exit code.
func Main(args []string, s Streams) int {
	if code, ok := isolate.Serve(args, s.In, s.Out); ok {
		return code
	}
	root := newRoot(s)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return ExitOK
	}
	var exit *ExitError
	if !errors.As(err, &exit) {
		// Only cobra's own parsing ends here: commands return ExitErrors.
		exit = &ExitError{Code: ExitUsage, Err: fmt.Errorf("%w; run 'coppice help' for the commands and their flags", err)}
	}
	if exit.Err != nil {
		fmt.Fprintf(s.Err, "coppice: %v\n", exit.Err)
	}
	return exit.Code
}

func newRoot(s Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "coppice",
		Short: "Nodes declared in CUE, reviewed in pull requests, reconciled from Git",
		Long: `Coppice is a drop-in replacement for Karpenter with Git as its control plane.

It serves the same API (karpenter.sh/v1, karpenter.k8s.aws/v1). What it adds is
what happens before an object reaches the cluster (CUE, precise findings) and
after (drift reports, committed back to Git).

Exit codes: 0 clean, 1 failed, 2 usage, 3 invalid or denied, 4 changes or drift found.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newControllerCommand(s),
		newRenderCommand(s),
		newVetCommand(s),
		newPlanCommand(s),
		newImportCommand(s),
		newAdoptCommand(s),
		newPolicyCommand(s),
		newCICommand(s),
		newBudgetsCommand(s),
		newSchemasCommand(s),
		newCRDsCommand(s),
		newInstallCommand(s),
		newExplainCommand(s),
		newDisruptionsCommand(s),
		newSnapshotCommand(s),
		newVersionCommand(s),
	)
	return root
}
