package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

type vetOptions struct {
	args                     []string
	cluster, output, against string
}

func newVetCommand(s Streams) *cobra.Command {
	var o vetOptions
	cmd := &cobra.Command{
		Use:   "vet DIR|FILE...",
		Short: "Say what is wrong with a tree of CUE or with manifests",
		Long: `Check everything that can be known before an object reaches a cluster: the CUE
schemas, and what an API server would say by the CRDs' schemas and rules.

DIR is the root of a tree of CUE, of which all clusters are checked, or a folder
of YAML. FILE is a YAML or JSON manifest, - for standard input. All findings are
printed, to stdout. The exit code is 3 if one of them is an error.`,
		Example: `  coppice vet .
  coppice vet . --cluster prod-eu -o github
  coppice vet nodepool.yaml --against <(kubectl get nodepool general -o yaml)`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("coppice vet takes at least one DIR or FILE; see 'coppice vet --help'")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			o.args = args
			return runVet(s, o)
		},
	}
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "check this cluster alone, the `name` of a folder of clusters/")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text, json, sarif, junit, github or markdown")
	cmd.Flags().StringVar(&o.against, "against", "", "a manifest of live objects: judge objects of the same name as changes of those in `FILE`")
	return cmd
}

func runVet(s Streams, o vetOptions) error {
	collectLater()
	if !slices.Contains(outputs(), o.output) {
		return usagef("output %q: give one of %s", o.output, strings.Join(outputs(), ", "))
	}
	judge, err := admission.New(schemas.CRDs())
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	v := &vetter{streams: s, judge: judge, texts: map[string][]byte{}}
	if o.against != "" {
		if err := v.readLive(o.against); err != nil {
			return err
		}
	}
	for _, arg := range o.args {
		if err := v.argument(arg, o.cluster); err != nil {
			return err
		}
	}
	found := v.findings.Sorted()
	// People are told once what is wrong with a definition that many objects share;
	// programs get a finding for each object.
	if o.output == "text" || o.output == "github" || o.output == "markdown" {
		found = found.Grouped()
	}
	if err := v.write(o.output, found); err != nil {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("write findings: %w", err)}
	}
	if found.HasErrors() {
		return &ExitError{Code: ExitInvalid}
	}
	return nil
}

func outputs() []string {
	return []string{"text", "json", "sarif", "junit", "github", "markdown"}
}

// vetter collects the findings of all arguments.
type vetter struct {
	streams  Streams
	judge    *admission.Judge
	live     render.Live
	findings diag.List
	objects  int
	trees    []localTree
	texts    map[string][]byte
}

// readLive reads the objects to judge changes against.
func (v *vetter) readLive(file string) error {
	text, err := v.read(file)
	if err != nil {
		return err
	}
	bundle, findings := render.Manifest(file, text)
	for _, f := range findings {
		if f.Code == render.CodeYAML {
			return &ExitError{Code: ExitUsage, Err: fmt.Errorf("read %s: %s: %s", file, f.Pos, f.Message)}
		}
	}
	v.live = func(o render.Object) map[string]any {
		if l, ok := bundle.Find(o.GVK.Kind, o.Name); ok {
			return l.Value
		}
		return nil
	}
	return nil
}

func (v *vetter) argument(arg, cluster string) error {
	if arg != "-" {
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return usagef("there is no file or folder %s", arg)
		case err != nil:
			return &ExitError{Code: ExitFailed, Err: err}
		}
		if info.IsDir() {
			return v.folder(arg, cluster)
		}
		if path.Ext(arg) == ".cue" {
			return usagef("%s: CUE is checked as a tree; name its root folder", arg)
		}
	}
	text, err := v.read(arg)
	if err != nil {
		return err
	}
	if arg == "-" && len(bytes.TrimSpace(text)) == 0 {
		return usagef("there is nothing on standard input to check")
	}
	v.manifest(cmp.Or(strings.TrimPrefix(slashed(arg), "-"), "stdin"), text)
	return nil
}

func (v *vetter) read(file string) ([]byte, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(v.streams.In)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s: %w", file, err)}
	}
	return text, nil
}

func (v *vetter) manifest(name string, text []byte) {
	v.texts[name] = text
	bundle, findings := render.Manifest(name, text)
	v.add(bundle, findings)
}

func (v *vetter) add(bundle render.Bundle, findings diag.List) {
	v.objects += len(bundle.Objects)
	for _, f := range findings {
		if f.Code == render.CodeUnknownKind {
			v.objects--
		}
	}
	v.findings = append(v.findings, render.Merge(findings, render.ValidateChange(bundle, v.judge, v.live))...)
}

// folder vets a tree of CUE or, if it has none, the manifests in a folder.
func (v *vetter) folder(dir, cluster string) error {
	tree, err := openTree(dir)
	if err != nil {
		return err
	}
	clusters, err := render.Clusters(tree.fs)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	if cluster != "" || len(clusters) == 0 {
		files := filesBelow(tree.fs, ".yaml", ".yml", ".json")
		if cluster == "" && len(files) > 0 {
			// Passing over CUE would let a wrong path pass for a clean tree.
			if cue := filesBelow(tree.fs, ".cue"); len(cue) > 0 {
				return usagef("%s is no tree of CUE but has some below it, as %s: name the root of each tree", dir, path.Dir(tree.prefix+cue[0]))
			}
			for _, file := range files {
				text, err := fs.ReadFile(tree.fs, file)
				if err != nil {
					return &ExitError{Code: ExitFailed, Err: fmt.Errorf("read %s: %w", file, err)}
				}
				v.manifest(tree.prefix+file, text)
			}
			return nil
		}
		clusters = []string{cluster}
	}
	v.trees = append(v.trees, tree)
	for _, name := range clusters {
		bundle, findings := render.Render(tree.fs, name)
		before := len(v.findings)
		v.add(bundle, findings)
		copy(v.findings[before:], tree.located(v.findings[before:]))
	}
	return nil
}

// filesBelow lists the files below a folder whose names end in one of the
// extensions, in order.
func filesBelow(fsys fs.FS, extensions ...string) []string {
	var files []string
	// A folder that can't be read has nothing for us; what is named on the command
	// line was found to exist before.
	_ = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.Type().IsRegular() && slices.Contains(extensions, path.Ext(name)) {
			files = append(files, name)
		}
		return nil
	})
	return files
}

func (v *vetter) source(name string) []byte {
	if text, ok := v.texts[name]; ok {
		return text
	}
	for _, t := range v.trees {
		if text := t.source(name); text != nil {
			return text
		}
	}
	return nil
}

func (v *vetter) write(output string, found diag.List) error {
	out := v.streams.Out
	switch output {
	case "json":
		return diag.WriteJSON(out, found)
	case "sarif":
		return diag.WriteSARIF(out, found, version, v.source)
	case "junit":
		return diag.WriteJUnit(out, found)
	case "github":
		return diag.WriteGitHub(out, found)
	case "markdown":
		return diag.WriteMarkdown(out, found)
	}
	if err := diag.WriteText(out, found, diag.TextOptions{Sources: v.source, Color: v.streams.color()}); err != nil {
		return err
	}
	noun := "objects"
	if v.objects == 1 {
		noun = "object"
	}
	_, err := fmt.Fprintf(v.streams.Err, "%d %s checked\n", v.objects, noun)
	return err
}
