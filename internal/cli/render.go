package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/render"
)

type renderOptions struct {
	dir, cluster, output string
	limits               limits
}

func newRenderCommand(s Streams) *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render DIR",
		Short: "Print the Kubernetes objects that a tree of CUE declares",
		Long: `Evaluate the CUE of one cluster in the tree at DIR and print its objects, in the
order in which they are applied. DIR may be the tree's root or the folder of a
cluster in it. Findings go to stderr; if one of them is an error, nothing is
printed and the exit code is 3.`,
		Example: `  coppice render . --cluster prod-eu
  coppice render . -o json | jq .items[].metadata.name`,
		Args: exactArgs(1, "DIR, the root of the tree"),
		RunE: func(_ *cobra.Command, args []string) error {
			o.dir = args[0]
			return runRender(s, o)
		},
	}
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "the `name` of the cluster, a folder of clusters/; needed if there are several")
	cmd.Flags().StringVarP(&o.output, "output", "o", "yaml", "yaml or json")
	o.limits.flags(cmd.Flags())
	return cmd
}

func runRender(s Streams, o renderOptions) error {
	var encode func(render.Bundle) ([]byte, error)
	switch o.output {
	case "yaml":
		encode = render.Bundle.YAML
	case "json":
		encode = render.Bundle.JSON
	default:
		return usagef("output %q: give yaml or json", o.output)
	}
	tree, cluster, err := clusterIn(o.dir, o.cluster, true)
	if err != nil {
		return err
	}
	bounds, err := o.limits.options()
	if err != nil {
		return err
	}
	bundle, findings, err := isolate.Render(context.Background(), tree.fs, cluster, bounds)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if len(findings) > 0 {
		if err := diag.WriteText(s.Err, tree.located(findings).Sorted().Grouped(), diag.TextOptions{Sources: tree.source}); err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
	}
	if findings.HasErrors() {
		return &ExitError{Code: ExitInvalid}
	}
	out, err := encode(bundle)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if _, err := s.Out.Write(out); err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write objects: %w", err)}
	}
	return nil
}
