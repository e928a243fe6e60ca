package render

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/coppice-dev/coppice/internal/diag"
)

// importFindings looks at the imports of a package and of all packages of the tree
// that it leads to. CUE's loader gives up at the first import that it can't
// resolve, and words its error for somebody who has a registry.
func (t *tree) importFindings(dir, name string) diag.List {
	var findings diag.List
	type pkg struct{ dir, name string }
	queue, seen := []pkg{{dir, name}}, map[pkg]bool{}
	defer func() {
		t.files = append(t.files, sortedKeys(t.holes.files)...)
		slices.Sort(t.files)
		t.files = slices.Compact(t.files)
	}()
	t.files = nil
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p] {
			continue
		}
		seen[p] = true
		for _, f := range t.importsOf(p.dir, p.name) {
			t.files = append(t.files, f.Filename)
			if t.holes.files[f.Filename] {
				continue
			}
			if fault, ok := t.notText[f.Filename]; ok {
				findings = append(findings, fault)
				continue
			}
			for spec := range f.ImportSpecs() {
				text, err := strconv.Unquote(spec.Path.Value)
				if err != nil || t.holes.imports[t.position(spec.Path.Pos())] {
					continue
				}
				imported := ast.ParseImportPath(text)
				local, problem, help := t.resolve(imported)
				if problem != "" {
					findings = append(findings, diag.Finding{
						Code: CodeImport, Message: problem, Help: help, Pos: t.position(spec.Path.Pos()),
					})
				} else if local != "" {
					queue = append(queue, pkg{local, imported.Qualifier})
				}
			}
		}
	}
	return findings
}

// importsOf parses the imports of a package's files: those in its folder, and those
// of the same package in the folders above. A file that isn't text may belong to
// any package.
func (t *tree) importsOf(dir, name string) (files []*ast.File) {
	key := [2]string{dir, name}
	if files, ok := t.imports[key]; ok {
		return files
	}
	defer func() { t.imports[key] = files }()
	for at := dir; ; at = path.Dir(at) {
		entries, err := t.ReadDir(at)
		if err != nil {
			return files
		}
		for _, e := range entries {
			if !isCUE(e) {
				continue
			}
			file := path.Join(at, e.Name())
			text, err := fs.ReadFile(t, file)
			if err != nil {
				continue
			}
			if fault, ok := textFault(file, text, CodeSyntax); ok && at == dir {
				t.notText[file] = fault
				files = append(files, &ast.File{Filename: file})
				continue
			}
			// A file with an error is reported by the loader.
			if f, err := parser.ParseFile(file, text, parser.ImportsOnly); err == nil && f.PackageName() == name {
				files = append(files, f)
			}
		}
		if at == "." {
			return files
		}
	}
}

// resolve finds what an import leads to: a folder of the tree, or else nothing to
// look into. A problem is why it leads nowhere.
func (t *tree) resolve(p ast.ImportPath) (local, problem, help string) {
	first, _, _ := strings.Cut(p.Path, "/")
	switch {
	case first == "tool":
		return "", fmt.Sprintf("package %s is not allowed", p.Path),
			"move what uses it into a file whose name ends in _tool.cue; such files aren't read here"
	case !strings.Contains(first, ".") && !within(p.Path, t.module):
		if known := builtins(); !slices.Contains(known, p.Path) {
			if s := nearest(p.Path, known); s != "" {
				return "", fmt.Sprintf("CUE has no package %s", p.Path), fmt.Sprintf("did you mean %s?", s)
			}
			return "", fmt.Sprintf("CUE has no package %s", p.Path), "CUE's packages are " + strings.Join(known, ", ")
		}
		return "", "", ""
	case within(p.Path, t.module):
		local = path.Join(".", strings.TrimPrefix(strings.TrimPrefix(p.Path, t.module), "/"))
		if !t.hasPackage(local) {
			help = "correct the path, or add the package"
			if s := nearest(local, t.folders()); s != "" {
				help = fmt.Sprintf("did you mean %s?", path.Join(t.module, s))
			}
			return "", fmt.Sprintf("the tree has no CUE in the folder %s", local), help
		}
		return local, "", ""
	}
	for _, m := range t.mounts {
		if !within(p.Path, m.module) {
			continue
		}
		if t.hasPackage(path.Join(mountRoot, p.Path)) {
			return "", "", ""
		}
		if m.module != SchemaModule {
			return "", fmt.Sprintf("there is no package %s below cue.mod", p.Path), "vendor it under cue.mod/pkg"
		}
		known := t.packagesOf(m)
		if s := nearest(p.Path, known); s != "" {
			return "", fmt.Sprintf("the schemas have no package %s", p.Path), fmt.Sprintf("did you mean %s?", s)
		}
		return "", fmt.Sprintf("the schemas have no package %s", p.Path), "import one of " + strings.Join(known, ", ")
	}
	return "", fmt.Sprintf("package %s is neither in the tree nor vendored", p.Path),
		"vendor it under cue.mod/pkg: registries are never asked, so that a commit means the same everywhere"
}

// folders lists the folders of the tree that hold CUE.
func (t *tree) folders() []string {
	var out []string
	// What can't be read isn't what was meant.
	_ = fs.WalkDir(t.base, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || name == "cue.mod"):
			return fs.SkipDir
		case isCUE(d):
			out = append(out, path.Dir(name))
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// builtins lists CUE's own packages, sorted, other than those below tool.
func builtins() []string {
	return []string{
		"crypto/ed25519", "crypto/hmac", "crypto/md5", "crypto/sha1", "crypto/sha256", "crypto/sha512",
		"encoding/base64", "encoding/csv", "encoding/hex", "encoding/json", "encoding/openapi", "encoding/toml", "encoding/yaml",
		"html", "list", "math", "math/bits", "net", "path", "regexp", "strconv", "strings", "struct",
		"text/tabwriter", "text/template", "time", "uuid",
	}
}

// within reports whether an import path belongs to a module.
func within(p, module string) bool {
	return p == module || strings.HasPrefix(p, module+"/")
}

func (t *tree) hasPackage(dir string) bool {
	entries, err := t.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, isCUE)
}

// packagesOf lists the packages of a mounted module.
func (t *tree) packagesOf(m mount) []string {
	var out []string
	// Modules that come with the binary can be read.
	_ = fs.WalkDir(m.layers[0], ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && t.hasPackage(path.Join(mountRoot, m.module, name)) {
			out = append(out, path.Join(m.module, name))
		}
		return nil
	})
	slices.Sort(out)
	return out
}
