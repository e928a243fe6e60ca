package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
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
command look for them. That folder is replaced as a whole: what else stands in it is
removed. On the way to it there may be no symbolic link. Coppice itself doesn't need them: it always uses the schemas that it comes with.`,
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
	n, err := vendor(dir)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write schemas: %w", err)}
	}
	if _, err := fmt.Fprintf(s.Out, "%d files written to %s\n", n, slashed(filepath.Join(dir, filepath.FromSlash(vendored)))); err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	return nil
}

// vendored is where the schemas stand in a tree.
const vendored = "cue.mod/pkg/" + schemas.CUEModule

// vendor replaces the schemas in a tree and returns the number of their files. Nothing
// outside the folder is touched, so links on the way to it are refused.
func vendor(dir string) (int, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	for i, c := range vendored + "/" {
		if c != '/' {
			continue
		}
		name := vendored[:i]
		switch info, err := root.Lstat(name); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return 0, err
		case info.Mode()&fs.ModeSymlink != 0:
			return 0, fmt.Errorf("%s is a symbolic link: remove it, so that nothing outside the folder is overwritten", slashed(filepath.Join(dir, name)))
		}
	}
	if err := root.RemoveAll(vendored); err != nil {
		return 0, err
	}
	n := 0
	err = fs.WalkDir(schemas.CUE(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(schemas.CUE(), name)
		if err != nil {
			return err
		}
		target := path.Join(vendored, name)
		if err := root.MkdirAll(path.Dir(target), 0o755); err != nil {
			return err
		}
		n++
		return root.WriteFile(target, text, 0o644)
	})
	return n, err
}
