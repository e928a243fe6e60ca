package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/isolate"
	"github.com/coppice-dev/coppice/policies"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

type vetOptions struct {
	args                     []string
	cluster, output, against string
	policies                 policyFlags
	limits                   limits
}

func newVetCommand(s Streams) *cobra.Command {
	var o vetOptions
	cmd := &cobra.Command{
		Use:   "vet DIR|FILE...",
		Short: "Say what is wrong with a tree of CUE or with manifests",
		Long: `Check everything that can be known before an object reaches a cluster: the CUE
schemas, what an API server would say by the CRDs' schemas and rules, and the
policies that the tree's coppice.cue applies.

DIR is the root of a tree of CUE, of which all clusters are checked, or a folder
of YAML. FILE is a YAML or JSON manifest, - for standard input. A folder or a CUE
file inside of a tree stands for the cluster that it belongs to, or for the whole
tree if it is shared. All findings are printed, to stdout. The exit code is 3 if
one of them is an error.`,
		Example: `  coppice vet .
  coppice vet clusters/prod-eu/pools.cue
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
	o.policies.flags(cmd.Flags())
	o.limits.flags(cmd.Flags())
	return cmd
}

func runVet(s Streams, o vetOptions) error {
	collectLater()
	apply, err := o.policies.options()
	if err != nil {
		return err
	}
	if !slices.Contains(outputs(), o.output) {
		return usagef("output %q: give one of %s", o.output, strings.Join(outputs(), ", "))
	}
	bounds, err := o.limits.options()
	if err != nil {
		return err
	}
	v := &vetter{
		streams: s, options: o, apply: apply, bounds: bounds, texts: map[string][]byte{}, rules: codeRules(),
		judge: sync.OnceValues(func() (*admission.Judge, error) { return admission.New(schemas.CRDs()) }),
	}
	if o.against != "" {
		if err := v.readLive(o.against); err != nil {
			return err
		}
	}
	for _, arg := range o.args {
		if err := v.argument(arg); err != nil {
			return err
		}
	}
	if len(v.files) > 0 {
		bundle, findings := render.Manifests(v.files...)
		if len(v.apply.Apply) > 0 {
			rules := policies.New(nil, v.apply)
			rules.Prepare()
			judged := rules.Check(bundle, findings)
			v.findings = append(v.findings, judged...)
			v.describe(rules.Describe(judged))
		}
		judge, err := v.judge()
		if err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
		v.add(bundle, findings, render.ValidateChange(bundle, judge, v.live), localTree{})
	}
	for _, part := range v.parts {
		if err := v.vetPart(part); err != nil {
			return err
		}
	}
	if o.against != "" && v.objects > 0 && v.compared.Load() == 0 {
		v.findings = append(v.findings, diag.Finding{
			Severity: diag.Warning, Code: render.CodeNotCompared, Pos: diag.Position{File: slashed(o.against)},
			Message: "nothing was compared: no object of this file has the kind and name of one that was checked",
			Help:    "give what the cluster has of the objects that are checked",
		})
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
	options  vetOptions
	bounds   isolate.Options
	apply    policies.Options
	judge    func() (*admission.Judge, error)
	live     render.Live
	compared atomic.Int64
	findings diag.List
	objects  int
	// parts are the trees of CUE to check, in the order in which they were named.
	parts []*part
	// files are the manifests to check.
	files []render.File
	// rules describe the codes of findings.
	rules map[string]diag.Rule
	texts map[string][]byte
}

// part is what the arguments name of one tree.
type part struct {
	tree localTree
	// all says that all clusters are meant, clusters which ones otherwise.
	all      bool
	clusters []string
	// folders and files are what was named, as paths in the tree.
	folders, files []string
}

// readLive reads the objects to judge changes against.
func (v *vetter) readLive(file string) error {
	text, err := readInput(v.streams, file)
	if err != nil {
		return err
	}
	bundle, findings := render.Manifest(file, text)
	for _, f := range findings {
		if f.Code == render.CodeYAML {
			return usagef("read %s: %s: %s", file, f.Pos, f.Message)
		}
	}
	if len(bundle.Objects) == 0 {
		return usagef("%s holds no object to compare with; give what 'kubectl get -o yaml' prints", file)
	}
	v.live = func(o render.Object) map[string]any {
		if l, ok := bundle.Find(o.GVK.Kind, o.Name); ok {
			v.compared.Add(1)
			return l.Value
		}
		return nil
	}
	return nil
}

func (v *vetter) argument(arg string) error {
	if arg != "-" {
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return usagef("there is no file or folder %s", arg)
		case err != nil:
			return &ExitError{Code: ExitFailed, Err: err}
		}
		if info.IsDir() {
			return v.folder(arg)
		}
		if path.Ext(arg) == ".cue" {
			return v.addPart(filepath.Dir(arg), filepath.Base(arg))
		}
	}
	if v.options.cluster != "" {
		return usagef("%s is a manifest, which belongs to no cluster: leave --cluster out", arg)
	}
	text, err := readInput(v.streams, arg)
	if err != nil {
		return err
	}
	if arg == "-" && len(bytes.TrimSpace(text)) == 0 {
		return usagef("there is nothing on standard input to check")
	}
	v.manifest(cmp.Or(strings.TrimPrefix(slashed(arg), "-"), "stdin"), text)
	return nil
}

// manifest takes a manifest, which is checked together with all others.
func (v *vetter) manifest(name string, text []byte) {
	if _, twice := v.texts[name]; twice {
		return
	}
	v.texts[name] = text
	v.files = append(v.files, render.File{Name: name, Text: text})
}

// add keeps what was found in a bundle, with the tree's paths.
func (v *vetter) add(bundle render.Bundle, findings, validated diag.List, tree localTree) {
	v.objects += len(bundle.Objects)
	for _, f := range findings {
		if f.Code == render.CodeUnknownKind {
			v.objects--
		}
	}
	v.findings = append(v.findings, tree.located(render.Merge(findings, validated))...)
}

// folder takes a tree of CUE, a part of one or, if it holds no CUE, the manifests in
// a folder.
func (v *vetter) folder(dir string) error {
	tree, err := openTree(dir)
	if err != nil {
		return err
	}
	_, below, err := rootOf(dir)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	clusters, err := render.Clusters(tree.fs)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	files, _ := filesBelow(tree.fs, ".cue")
	manifests, links := filesBelow(tree.fs, ".yaml", ".yml", ".json")
	switch {
	case len(clusters) > 0, below != "." && len(files) > 0, len(manifests)+len(links) == 0:
		return v.addPart(dir, "")
	case len(files) > 0:
		// Passing over CUE would let a wrong path pass for a clean tree.
		return usagef("%s is no tree of CUE but has some below it, as %s: name the root of each tree", dir, path.Dir(tree.prefix+files[0]))
	case v.options.cluster != "":
		return usagef("%s is a folder of manifests, which belong to no cluster: leave --cluster out", dir)
	}
	for _, file := range manifests {
		text, err := readInput(v.streams, tree.prefix+file)
		if err != nil {
			return err
		}
		v.manifest(tree.prefix+file, text)
	}
	for _, link := range links {
		v.findings = append(v.findings, unread(tree.prefix+link, "is a symbolic link, which is never followed", "name the file that it leads to"))
	}
	return nil
}

// addPart notes that a folder, or a file in it, is to be checked.
func (v *vetter) addPart(dir, file string) error {
	tree, cluster, err := clusterIn(dir, v.options.cluster, false)
	if err != nil {
		return err
	}
	_, below, err := rootOf(dir)
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	i := slices.IndexFunc(v.parts, func(p *part) bool { return p.tree.prefix == tree.prefix })
	if i < 0 {
		i = len(v.parts)
		v.parts = append(v.parts, &part{tree: tree})
	}
	p := v.parts[i]
	switch {
	case cluster == "":
		p.all = true
	case !slices.Contains(p.clusters, cluster):
		p.clusters = append(p.clusters, cluster)
	}
	if file == "" {
		p.folders = append(p.folders, below)
	} else {
		p.files = append(p.files, path.Join(below, file))
	}
	return nil
}

// vetPart checks what was named of a tree.
func (v *vetter) vetPart(p *part) error {
	clusters := p.clusters
	if p.all {
		all, err := render.Clusters(p.tree.fs)
		if err != nil {
			return &ExitError{Code: ExitFailed, Err: err}
		}
		if clusters = all; len(all) == 0 {
			clusters = []string{""}
		}
	}
	// Compiling the CRDs goes on while the tree is evaluated.
	go v.judge()
	reader := newReading(p.tree.fs)
	bounds := v.bounds
	bounds.Read = reader.seen
	bounds.Policies = func() policies.Options { return v.apply }
	bounds.Validator = func() (*render.Validator, error) {
		judge, err := v.judge()
		if err != nil {
			return nil, err
		}
		return render.NewValidator(judge, v.live), nil
	}
	err := isolate.Each(context.Background(), p.tree.fs, clusters, bounds, func(r render.Result) {
		if len(clusters) > 1 {
			for _, found := range []diag.List{r.Judged, r.Findings, r.Validated} {
				for i := range found {
					if found[i].Object != "" {
						found[i].Cluster = r.Bundle.Cluster
					}
				}
			}
		}
		v.findings = append(v.findings, p.tree.located(r.Judged)...)
		v.describe(r.Rules)
		reader.note(r)
		v.add(r.Bundle, r.Findings, r.Validated, p.tree)
	})
	if err != nil {
		return &ExitError{Code: ExitFailed, Err: err}
	}
	v.findings = append(v.findings, p.tree.located(reader.unread(p))...)
	return nil
}

// filesBelow lists the files below a folder whose names end in one of the
// extensions, in order, and the symbolic links of such names.
func filesBelow(fsys fs.FS, extensions ...string) (files, links []string) {
	// A folder that can't be read has nothing for us; what is named on the command
	// line was found to exist before.
	_ = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		switch {
		case !slices.Contains(extensions, path.Ext(name)):
		case d.Type().IsRegular():
			files = append(files, name)
		case d.Type()&fs.ModeSymlink != 0:
			links = append(links, name)
		}
		return nil
	})
	return files, links
}

// docs is where the pages of docs/ can be read.
const docs = "https://github.com/coppice-dev/coppice/blob/main/docs/"

// codeRules describes the codes other than those of policies' rules.
func codeRules() map[string]diag.Rule {
	out := map[string]diag.Rule{}
	for _, page := range []struct {
		codes map[string]string
		uri   string
	}{{render.Codes(), docs + "authoring.md#codes"}, {isolate.Codes(), docs + "authoring.md#codes"}, {policies.Codes(), docs + "policies.md"}} {
		for code, title := range page.codes {
			out[code] = diag.Rule{Title: title, URI: page.uri}
		}
	}
	return out
}

// describe keeps what the rules of policies say of themselves.
func (v *vetter) describe(rules map[string]diag.Rule) {
	for code, r := range rules {
		r.URI = docs + "policies.md"
		v.rules[code] = r
	}
}

// source returns the text of a file that findings refer to. It is read once: there
// may be thousands of them.
func (v *vetter) source(name string) []byte {
	if text, ok := v.texts[name]; ok {
		return text
	}
	for _, p := range v.parts {
		if text := p.tree.source(name); text != nil {
			v.texts[name] = text
			return text
		}
	}
	v.texts[name] = nil
	return nil
}

func (v *vetter) write(output string, found diag.List) error {
	out := v.streams.Out
	switch output {
	case "json":
		return diag.WriteJSON(out, found)
	case "sarif":
		return diag.WriteSARIF(out, found, version, v.source, v.rules)
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
