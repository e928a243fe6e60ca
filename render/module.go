package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/mod/modfile"
	"cuelang.org/go/mod/module"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
)

const (
	// languageVersion is the CUE language version of modules that come with the
	// binary, and of trees that state none: the version that this binary evaluates.
	languageVersion = "v0.17.0"
	// mountVersion is the version under which a mounted module is known to
	// CUE's loader when the author's module file doesn't name one.
	mountVersion = "v0.0.1"
	moduleFile   = "cue.mod/module.cue"
)

// SchemaModule is the CUE module that the schemas are imported from. Positions in
// it begin with this path; its files stand in the binary, not in any tree.
const SchemaModule = schemas.CUEModule

// mountModules makes the schemas and everything vendored below cue.mod/pkg,
// cue.mod/gen and cue.mod/usr importable, and tells CUE's loader so through a
// replaced module file.
//
// The loader can read such folders itself, but not yet from an fs.FS (v0.17.1:
// "cannot get absolute path for FS"), and it would ask a registry for modules
// that the module file doesn't list.
func (t *tree) mountModules(definitions fs.FS) diag.List {
	if _, err := fs.Stat(t.base, "cue.mod/local-module.cue"); err == nil {
		return diag.List{{
			Code:    CodeModule,
			Message: "cue.mod/local-module.cue is not allowed",
			Pos:     diag.Position{File: "cue.mod/local-module.cue"},
			Help:    "remove it from the repository: it can replace modules with folders outside of the tree",
		}}
	}
	text, file, findings := t.moduleFile()
	if findings != nil {
		return findings
	}
	t.module = modulePath(file.Module)
	t.mounts = append(t.mounts, mount{module: SchemaModule, layers: []fs.FS{definitions}, origins: []string{SchemaModule}})
	t.mountVendored()

	versions := map[string]string{}
	for name, dep := range file.Deps {
		versions[modulePath(name)] = dep.Version
	}
	var extra bytes.Buffer
	for _, m := range t.mounts {
		if versions[m.module] == "" {
			fmt.Fprintf(&extra, "deps: %q: {v: %q, default: true}\n", m.module+"@v0", mountVersion)
		}
	}
	t.replaced[moduleFile] = append(append(text, '\n'), extra.Bytes()...)
	return nil
}

// moduleFile returns the author's module file, or one that stands in for it.
func (t *tree) moduleFile() ([]byte, *modfile.File, diag.List) {
	text, err := fs.ReadFile(t, moduleFile)
	switch {
	case errors.Is(err, errRefused):
		return nil, nil, t.refused
	case errors.Is(err, fs.ErrNotExist):
		text = fmt.Appendf(nil, "module: \"cluster.local@v0\"\nlanguage: version: %q\n", languageVersion)
	case err != nil:
		return nil, nil, diag.List{{Code: CodeTree, Message: err.Error(), Pos: diag.Position{File: moduleFile}}}
	}
	file, err := modfile.ParseNonStrict(text, moduleFile)
	if err != nil {
		findings := t.cueFindings(err, CodeModule, "a module file needs module: \"NAME\" and language: version: \""+languageVersion+"\" and nothing else")
		for i := range findings {
			if !findings[i].Pos.IsValid() {
				findings[i].Pos.File = moduleFile
			}
		}
		return nil, nil, findings
	}
	for _, name := range sortedKeys(file.Deps) {
		if file.Deps[name].ReplaceWith != "" {
			return nil, nil, diag.List{{
				Code:    CodeModule,
				Message: fmt.Sprintf("module %s is replaced with %s", name, file.Deps[name].ReplaceWith),
				Pos:     diag.Position{File: moduleFile},
				Help:    "vendor the module under cue.mod/pkg instead of replacing it",
			}}
		}
	}
	return text, file, nil
}

// mountVendored mounts each domain that has packages below cue.mod.
func (t *tree) mountVendored() {
	byDomain := map[string]*mount{}
	for _, dir := range []string{"cue.mod/pkg", "cue.mod/gen", "cue.mod/usr"} {
		entries, err := fs.ReadDir(t.base, dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			domain := e.Name()
			// Without a dot it can't be a module's first element; the schemas of
			// this binary replace a copy that was vendored for editors.
			if !e.IsDir() || !strings.Contains(domain, ".") || module.CheckPath(domain+"@v0") != nil {
				continue
			}
			m := byDomain[domain]
			if m == nil {
				m = &mount{module: domain}
				byDomain[domain] = m
			}
			m.layers = append(m.layers, guardedDir{t, path.Join(dir, domain)})
			m.origins = append(m.origins, path.Join(dir, domain))
		}
	}
	for _, domain := range sortedKeys(byDomain) {
		if domain != path.Dir(SchemaModule) {
			t.mounts = append(t.mounts, *byDomain[domain])
		}
	}
}

// modulePath cuts the major version off a module's path.
func modulePath(name string) string {
	p, _, _ := strings.Cut(name, "@")
	return p
}

// mountRegistry serves the tree's mounts to CUE's loader and refuses everything
// else: what an import means never depends on a network.
type mountRegistry struct{ tree *tree }

// mountFS tells the loader where in the tree a module's files stand.
type mountFS struct {
	fs.FS
	root string
}

func (m mountFS) OSRoot() string { return m.root }

func (r mountRegistry) Fetch(_ context.Context, m module.Version) (module.SourceLoc, error) {
	name := modulePath(m.Path())
	if !r.has(name) {
		return module.SourceLoc{}, notVendored(m.Path())
	}
	root := path.Join(mountRoot, name)
	sub, err := fs.Sub(r.tree, root)
	if err != nil {
		return module.SourceLoc{}, err
	}
	return module.SourceLoc{FS: mountFS{sub, "/" + root}, Dir: "."}, nil
}

func (r mountRegistry) ModFile(_ context.Context, m module.Version) (*modfile.File, error) {
	// What isn't vendored gets a module file too: only its own imports shall fail.
	text := fmt.Appendf(nil, "module: %q\nlanguage: version: %q\n", m.Path(), languageVersion)
	return modfile.ParseNonStrict(text, moduleFile)
}

func (r mountRegistry) ModuleVersions(_ context.Context, name string) ([]string, error) {
	if !r.has(modulePath(name)) {
		return nil, notVendored(name)
	}
	return []string{mountVersion}, nil
}

func (r mountRegistry) has(name string) bool {
	return slices.ContainsFunc(r.tree.mounts, func(m mount) bool { return m.module == name })
}

func notVendored(name string) error {
	return fmt.Errorf("module %s isn't vendored and registries are never asked", name)
}
