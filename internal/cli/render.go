package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

type renderOptions struct {
	dir, cluster, output string
}

func newRenderCommand(s Streams) *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render DIR",
		Short: "Print the Kubernetes objects that a tree of CUE declares",
		Long: `Evaluate the CUE of one cluster in the tree at DIR and print its objects, in the
order in which they are applied. Findings go to stderr; if one of them is an
error, nothing is printed and the exit code is 3.`,
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
	return cmd
}

func runRender(s Streams, o renderOptions) error {
	collectLater()
	var encode func(render.Bundle) ([]byte, error)
	switch o.output {
	case "yaml":
		encode = render.Bundle.YAML
	case "json":
		encode = render.Bundle.JSON
	default:
		return usagef("output %q: give yaml or json", o.output)
	}
	tree, err := openTree(o.dir)
	if err != nil {
		return err
	}
	bundle, findings := render.Render(tree.fs, o.cluster)
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

// localTree is a folder that was named on the command line. Findings in it are
// shown with paths that the user can open from where they are.
type localTree struct {
	fs fs.FS
	// prefix is what to put before a file's name, "" or a path with a slash at its end.
	prefix string
}

func openTree(dir string) (localTree, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return localTree{}, usagef("there is no folder %s", dir)
	case err != nil:
		return localTree{}, &ExitError{Code: ExitFailed, Err: err}
	case !info.IsDir():
		return localTree{}, usagef("%s is not a folder; name the root of the tree", dir)
	}
	prefix := ""
	if name := slashed(dir); name != "." {
		prefix = strings.TrimSuffix(name, "/") + "/"
	}
	return localTree{fs: os.DirFS(dir), prefix: prefix}, nil
}

// located returns the findings with the tree's own path before its files.
func (t localTree) located(l diag.List) diag.List {
	out := make(diag.List, len(l))
	move := func(p diag.Position) diag.Position {
		if p.IsValid() && !strings.HasPrefix(p.File, render.SchemaModule+"/") {
			p.File = t.prefix + p.File
		}
		return p
	}
	for i, f := range l {
		f.Pos = move(f.Pos)
		related := make([]diag.Related, len(f.Related))
		for j, r := range f.Related {
			related[j] = diag.Related{Pos: move(r.Pos), Message: r.Message}
		}
		f.Related = related
		out[i] = f
	}
	return out
}

// source returns the text of a file by the name that located gave it.
func (t localTree) source(name string) []byte {
	rest, ok := strings.CutPrefix(name, t.prefix)
	if !ok {
		return nil
	}
	text, err := fs.ReadFile(t.fs, rest)
	if err != nil {
		return nil
	}
	return text
}
