package render

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/parser"

	"github.com/coppice-dev/coppice/internal/diag"
)

// clustersDir is the folder of a tree that has a package for each cluster.
const clustersDir = "clusters"

// Clusters lists the clusters that a tree declares, in order: the folders of
// clusters that hold CUE, or "" alone for a tree whose root is the only
// cluster's package. A tree that declares none gives an empty list.
func Clusters(fsys fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(fsys, clustersDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", clustersDir, err)
	}
	var names []string
	for _, e := range entries {
		if (!e.IsDir() && e.Type()&fs.ModeSymlink == 0) || strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") {
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 || hasCUE(fsys, path.Join(clustersDir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	if len(names) > 0 {
		return names, nil
	}
	if hasCUE(fsys, ".") && !onlySettings(fsys) {
		return []string{""}, nil
	}
	return nil, nil
}

func hasCUE(fsys fs.FS, dir string) bool {
	entries, err := fs.ReadDir(fsys, dir)
	return err == nil && slices.ContainsFunc(entries, isCUE)
}

// isCUE reports whether CUE's loader would take the file into a package.
func isCUE(e fs.DirEntry) bool {
	name := e.Name()
	return !e.IsDir() && path.Ext(name) == ".cue" && name[0] != '.' && name[0] != '_' &&
		!strings.HasSuffix(name, "_tool.cue") && !strings.HasSuffix(name, "_test.cue")
}

// clusterDir finds the folder of the named cluster's package.
func clusterDir(fsys fs.FS, cluster string) (dir, name string, _ diag.List) {
	names, err := Clusters(fsys)
	if err != nil {
		return "", "", diag.List{{Code: CodeTree, Message: err.Error(), Pos: diag.Position{File: clustersDir}}}
	}
	missing := func(message, help string) (string, string, diag.List) {
		return "", "", diag.List{{
			Code: CodeNoCluster, Message: message, Help: help,
			Pos: diag.Position{File: clustersDir},
		}}
	}
	switch {
	case len(names) == 0:
		return missing("the tree declares no cluster",
			"write a CUE package with nodePools and nodeClasses in clusters/NAME, or at the root for a single cluster")
	case cluster == "" && len(names) > 1:
		return missing(fmt.Sprintf("the tree declares %d clusters and none was named", len(names)),
			"name one of "+strings.Join(names, ", "))
	case cluster == "" && names[0] == "":
		return ".", "", nil
	case cluster == "":
		return path.Join(clustersDir, names[0]), names[0], nil
	case !slices.Contains(names, cluster):
		help := "the tree's root is its only cluster; leave the name out"
		if names[0] != "" {
			help = "name one of " + strings.Join(names, ", ")
			if s := nearest(cluster, names); s != "" {
				help = fmt.Sprintf("did you mean %s?", s)
			}
		}
		return missing(fmt.Sprintf("the tree has no cluster %q", cluster), help)
	}
	return path.Join(clustersDir, cluster), cluster, nil
}

// FindCluster returns the name of the cluster that is meant by a name, which may be
// left out if there is only one, or why there is none.
func FindCluster(fsys fs.FS, cluster string) (string, diag.List) {
	_, name, findings := clusterDir(fsys, cluster)
	return name, findings
}

// Place is where a finding about the evaluation of a whole cluster stands: the file of
// its package if there is one alone, or else the folder, "." for the root.
func Place(fsys fs.FS, cluster string) diag.Position {
	dir, _, findings := clusterDir(fsys, cluster)
	if findings != nil {
		return diag.Position{File: clustersDir}
	}
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return diag.Position{File: dir}
	}
	files := slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool { return !isCUE(e) })
	if dir == "." && len(files) > 1 {
		files = slices.DeleteFunc(files, func(e fs.DirEntry) bool { return e.Name() == settingsFile })
	}
	if len(files) == 1 {
		return diag.Position{File: path.Join(dir, files[0].Name())}
	}
	return diag.Position{File: dir}
}

// instances parses packages, each named as in ./dir:name, and what they import.
func (t *tree) instances(packages ...string) []*build.Instance {
	return load.Instances(packages, &load.Config{
		FS:       t,
		Dir:      "/",
		Registry: mountRegistry{t},
		Env:      []string{},
		ParseFile: func(name string, src any, cfg parser.Config) (*ast.File, error) {
			if t.holes.files[t.origin(name)] {
				return empty(name, src), nil
			}
			f, err := parser.ParseFile(name, src, cfg)
			if f != nil && strings.HasPrefix(name, "/"+mountRoot+"/"+SchemaModule+"/") {
				openSchemas(f)
			} else if f != nil {
				t.dig(f)
				for _, edit := range t.edits {
					edit(f)
				}
			}
			return f, err
		},
	})
}

// loadPackage evaluates the package in folder dir, as loadNamed does. With an
// instance, the value can be looked into, though parts of it may be erroneous.
func (t *tree) loadPackage(ctx *cue.Context, dir string) (cue.Value, *build.Instance, diag.List) {
	name, findings := t.packageName(dir)
	var told diag.List
	if len(t.refused) > 0 {
		// What is wrong with the other files can be told all the same.
		if told = findings; !t.omitRefused() {
			return cue.Value{}, nil, told
		}
		name, findings = t.packageName(dir)
	}
	if told = append(told, findings...); name == "" {
		return cue.Value{}, nil, told
	}
	t.holes.unread = t.holes.unread || findings != nil
	v, inst, findings := t.loadNamed(ctx, dir, name)
	return v, inst, append(told, findings...)
}

// loadNamed evaluates the package called name in folder dir. There may be errors
// among the findings and an instance all the same: the package was evaluated without
// what they are about.
func (t *tree) loadNamed(ctx *cue.Context, dir, name string) (cue.Value, *build.Instance, diag.List) {
	var told diag.List
	for range maxPasses {
		v, inst, findings := t.attempt(ctx, dir, name)
		if inst != nil {
			return v, inst, told
		}
		more, ok := t.cut(findings)
		told = append(told, more...)
		if !ok {
			break
		}
	}
	return cue.Value{}, nil, told
}

// attempt is one pass of loadNamed.
func (t *tree) attempt(ctx *cue.Context, dir, name string) (cue.Value, *build.Instance, diag.List) {
	inst := t.instances("./" + dir + ":" + name)[0]
	if len(t.refused) > 0 {
		return cue.Value{}, nil, t.refused
	}
	if findings := t.importFindings(dir, name); len(findings) > 0 {
		// What the loader says about other things than imports holds beside them.
		for _, f := range t.faultsOf(dir, inst.Err) {
			if _, notText := t.notText[f.Pos.File]; f.Code != CodeImport && !notText {
				findings = append(findings, f)
			}
		}
		return cue.Value{}, nil, findings
	}
	if inst.Err != nil {
		return cue.Value{}, nil, t.faultsOf(dir, inst.Err)
	}
	v := ctx.BuildInstance(inst)
	if len(t.refused) > 0 {
		return cue.Value{}, nil, t.refused
	}
	if inst.Err != nil {
		return cue.Value{}, nil, t.loadFindings(inst.Err)
	}
	return v, inst, nil
}

// faultsOf is what keeps a package from being loaded.
func (t *tree) faultsOf(dir string, err error) diag.List {
	said := t.loadFindings(err)
	syntax := t.syntaxFindings(dir, said)
	if len(syntax) == 0 {
		return said
	}
	return append(syntax, slices.DeleteFunc(said, func(f diag.Finding) bool {
		return slices.ContainsFunc(syntax, func(s diag.Finding) bool {
			return s.Pos.File == f.Pos.File || slices.ContainsFunc(f.Related, func(r diag.Related) bool { return s.Pos.File == r.Pos.File })
		})
	})...)
}

// packageName finds the one package whose files stand in dir. If there are several, it
// returns the one that has most of the files beside what is wrong.
func (t *tree) packageName(dir string) (string, diag.List) {
	first, unnamed, notText, findings := t.clauses(dir)
	if len(first) == 0 && notText != nil {
		return "", notText
	}
	if findings != nil {
		return "", findings
	}
	if dir == "." && len(first) > 1 {
		delete(first, SettingsPackage)
	}
	if dir == "." && len(first) > 1 {
		// Settings that begin with the wrong clause are told by who reads them.
		for _, n := range sortedKeys(first) {
			if first[n] == settingsFile && len(t.importsOf(dir, n)) == 1 {
				delete(first, n)
			}
		}
	}
	names := sortedKeys(first)
	switch {
	case len(t.refused) > 0:
		return "", t.refused
	case len(names) == 0 && unnamed == "":
		return "", nil // All files have been left out.
	case len(names) == 0:
		return "", diag.List{{
			Code:    CodeNoCluster,
			Message: "the file belongs to no package, so it isn't read",
			Pos:     diag.Position{File: unnamed, Line: 1, Col: 1},
			Help:    "begin it with a package clause, as in: package cluster",
		}}
	case len(names) > 1:
		if base := path.Base(dir); slices.Contains(names, base) {
			return base, nil
		}
		out := diag.Finding{
			Code:    CodeNoCluster,
			Message: fmt.Sprintf("the folder holds %d packages: %s", len(names), strings.Join(names, ", ")),
			Pos:     diag.Position{File: first[names[1]], Line: 1, Col: 1},
			Help:    "give all files of a cluster the same package clause",
		}
		for _, n := range names {
			out.Related = append(out.Related, diag.Related{
				Pos: diag.Position{File: first[n], Line: 1, Col: 1}, Message: "package " + n,
			})
		}
		most := slices.MaxFunc(names, func(a, b string) int { return len(t.importsOf(dir, a)) - len(t.importsOf(dir, b)) })
		return most, diag.List{out}
	}
	return names[0], nil
}

// clauses finds the packages whose files stand in dir, each with its first file, the
// last file that belongs to none, and what is wrong with files that aren't text. What
// the tree refuses to read is in t.refused.
func (t *tree) clauses(dir string) (first map[string]string, unnamed string, notText, _ diag.List) {
	entries, err := t.ReadDir(dir)
	if err != nil {
		return nil, "", nil, diag.List{{Code: CodeTree, Message: err.Error(), Pos: diag.Position{File: dir}}}
	}
	first = map[string]string{}
	for _, e := range entries {
		if !isCUE(e) {
			continue
		}
		file := path.Join(dir, e.Name())
		text, err := fs.ReadFile(t, file)
		if err != nil {
			continue
		}
		if f, ok := textFault(file, text, CodeSyntax); ok {
			notText = append(notText, f)
			continue
		}
		f, err := parser.ParseFile(file, text, parser.PackageClauseOnly)
		if err != nil {
			// If there is another file, the package is known all the same.
			notText = append(notText, t.syntaxOf(file)...)
			continue
		}
		name := f.PackageName()
		if name == "" {
			unnamed = file
		} else if first[name] == "" {
			first[name] = file
		}
	}
	return first, unnamed, notText, nil
}

// newContext returns a context of its own for one evaluation: CUE keeps every
// value of a context alive as long as the context.
func newContext() *cue.Context { return cuecontext.New() }
