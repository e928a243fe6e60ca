package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/schemas"
)

func newCRDsCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:     "crds",
		Short:   "Print the CRDs of everything that Coppice serves",
		Example: "  coppice crds | kubectl apply --server-side -f -",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := s.Out.Write(schemas.CRDYAML()); err != nil {
				return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write CRDs: %w", err)}
			}
			return nil
		},
	}
}

func newSchemasCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schemas",
		Short: "Work with the CUE schemas that come with this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usagef("coppice schemas takes a subcommand; see 'coppice schemas --help'")
		},
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "vendor DIR",
		Short: "Write the CUE schemas into a tree, for editors and the cue command",
		Long: `Write the schemas to DIR/cue.mod/pkg/` + schemas.CUEModule + `, where editors and the cue
command look for them. Files that a former release had and this one doesn't have are
removed. Coppice itself doesn't need them: it always uses the schemas that it comes with.`,
		Example: "  coppice schemas vendor .",
		Args:    exactArgs(1, "DIR, the root of the tree"),
		RunE: func(_ *cobra.Command, args []string) error {
			return runVendor(s, args[0])
		},
	})
	return cmd
}

func runVendor(s Streams, dir string) error {
	if _, err := openTree(dir); err != nil {
		return err
	}
	root := filepath.Join(dir, "cue.mod", "pkg", filepath.FromSlash(schemas.CUEModule))
	n := 0
	err := os.RemoveAll(root)
	if err == nil {
		err = fs.WalkDir(schemas.CUE(), ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(schemas.CUE(), name)
			if err != nil {
				return err
			}
			target := filepath.Join(root, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			n++
			return os.WriteFile(target, text, 0o644)
		})
	}
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write schemas: %w", err)}
	}
	if _, err := fmt.Fprintf(s.Out, "%d files written to %s\n", n, slashed(root)); err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	return nil
}
