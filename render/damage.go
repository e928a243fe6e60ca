package render

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/coppice-dev/coppice/internal/diag"
)

// A file that isn't CUE is left out, and the rest of its package evaluated all the same.
// What that comes to isn't what the author wrote, so that no object of it counts, and
// of what is found only that which no file could mend.

// syntaxFindings tells what is wrong with the syntax of every file that a package
// consists of: CUE's loader stops at the first folder that it can't read. said is what
// it told. Of a line, the first error tells what the others follow from.
func (t *tree) syntaxFindings(dir string, said diag.List) diag.List {
	files := slices.Clone(t.files)
	for _, f := range said {
		files = append(files, f.Pos.File)
	}
	entries, err := t.ReadDir(dir)
	if err == nil {
		for _, e := range entries {
			if isCUE(e) {
				files = append(files, path.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(files)
	var out diag.List
	for _, file := range slices.Compact(files) {
		out = append(out, t.syntaxOf(file)...)
	}
	return out
}

// syntaxOf is what is wrong with the syntax of a file.
func (t *tree) syntaxOf(file string) diag.List {
	text, err := fs.ReadFile(t, file)
	if err != nil || t.holes.files[file] {
		return nil
	}
	if f, ok := textFault(file, text, CodeSyntax); ok {
		return diag.List{f}
	}
	_, err = parser.ParseFile(file, text, parser.ParseComments)
	return slices.CompactFunc(t.cueFindings(err, CodeSyntax, ""), func(a, b diag.Finding) bool { return a.Pos.Line == b.Pos.Line })
}

// leaveOut has a file read as an empty one, if something is wrong with its syntax.
func (t *tree) leaveOut(file string) bool {
	if t.holes.files[file] || len(t.syntaxOf(file)) == 0 {
		return false
	}
	text, err := fs.ReadFile(t, file)
	if err != nil {
		return false
	}
	if t.holes.files == nil {
		t.holes.files = map[string]bool{}
	}
	t.holes.files[file] = true
	t.holes.text = append(t.holes.text, string(text))
	return true
}

// empty stands in for a file that is left out. Whichever package it was to belong to.
func empty(name string, src any) *ast.File {
	if f, err := parser.ParseFile(name, src, parser.PackageClauseOnly); err == nil {
		return &ast.File{Filename: name, Decls: slices.DeleteFunc(f.Decls, func(d ast.Decl) bool {
			_, clause := d.(*ast.Package)
			return !clause
		})}
	}
	return &ast.File{Filename: name}
}

// isPart reports whether parts of the cluster's package are missing.
func (t *tree) isPart() bool {
	for file := range t.holes.files {
		if file != settingsFile {
			return true
		}
	}
	return t.holes.unread
}

// mayDeclare reports whether a file that is left out may declare a name.
func (h *holes) mayDeclare(name string) bool {
	return h.unread || slices.ContainsFunc(h.text, func(text string) bool { return mentions(text, name) })
}

// certain returns what is wrong whatever the missing parts of a package say. told is what
// was found before it was evaluated.
func (h *holes) certain(told, found diag.List) diag.List {
	return append(told, slices.DeleteFunc(found, func(f diag.Finding) bool {
		switch f.Code {
		case CodeConflict:
			name, undefined := strings.CutPrefix(f.Message, undefinedField)
			return undefined && h.mayDeclare(name)
		case CodeUnknownField, CodeType, CodeEnum, CodeConstraint, CodeIdentity, CodeMisnamedField, CodeTooLarge, CodeCatalogue, CodeLabel:
			return false
		}
		return true
	})...)
}

// undefinedField is how CUE begins to say that a value doesn't have a field.
const undefinedField = "undefined field: "

// meantField is the field that the author most likely meant by the selector at a place,
// with what stands before the dot, if that is a package.
func (t *tree) meantField(at diag.Position, name string) string {
	f := t.parsed(at.File)
	if f == nil {
		return ""
	}
	meant := ""
	ast.Walk(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if p := sel.Sel.Pos(); !ok || p.Line() != at.Line || p.Column() != at.Col {
			return true
		}
		for spec := range f.ImportSpecs() {
			if importName(spec) != x.Name {
				continue
			}
			if dir, pkg := t.folderOf(spec); dir != "" {
				if s := nearest(name, t.declared(dir, pkg)); s != "" {
					meant = x.Name + "." + s
				}
			}
		}
		return true
	}, nil)
	return meant
}

// meantName is the name that the author most likely meant by one that isn't declared.
func (t *tree) meantName(at diag.Position, name string) string {
	f := t.parsed(at.File)
	if f == nil {
		return ""
	}
	known := t.declared(path.Dir(at.File), f.PackageName())
	for spec := range f.ImportSpecs() {
		known = append(known, importName(spec))
	}
	return nearest(name, known)
}

func (t *tree) parsed(file string) *ast.File {
	text, err := fs.ReadFile(t, file)
	if err != nil {
		return nil
	}
	f, err := parser.ParseFile(file, text)
	if err != nil {
		return nil
	}
	return f
}

// folderOf is the folder in which the tree has an imported package, and its name.
func (t *tree) folderOf(spec *ast.ImportSpec) (dir, pkg string) {
	p := importPath(spec)
	if within(p.Path, t.module) {
		return path.Join(".", strings.TrimPrefix(strings.TrimPrefix(p.Path, t.module), "/")), p.Qualifier
	}
	return path.Join(mountRoot, p.Path), p.Qualifier
}

// declared lists what the files of a package in a folder declare.
func (t *tree) declared(dir, pkg string) []string {
	entries, err := t.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !isCUE(e) {
			continue
		}
		f := t.parsed(path.Join(dir, e.Name()))
		if f == nil || f.PackageName() != pkg {
			continue
		}
		for _, d := range f.Decls {
			if field, ok := d.(*ast.Field); ok && labelOf(field) != "" {
				out = append(out, labelOf(field))
			}
		}
	}
	return out
}
