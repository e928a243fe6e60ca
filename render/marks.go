package render

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// marks says where the schemas have rules that concern a whole struct or list:
// conditions, patterns for names, choices between structs. Places are written as
// in "spec.disruption.budgets[]", with a * for the entries of a map. Everywhere
// else it is enough to judge each value on its own, which costs far less.
type marks map[string]bool

// markDefinition adds the places of a definition to m.
func (m marks) markDefinition(files schemaFiles, pkg, def string) {
	w := &marker{marks: m, files: files, busy: map[string]bool{}}
	w.definition(pkg, def, "")
}

// schemaFiles holds the parsed files of the schemas by import path.
type schemaFiles map[string][]*ast.File

type marker struct {
	marks marks
	files schemaFiles
	// busy holds the definitions on the way here, so that one that refers to
	// itself comes to an end.
	busy map[string]bool
}

// scope is where an expression stands: its package and its file's imports.
type scope struct {
	pkg  string
	file *ast.File
}

func (w *marker) definition(pkg, name, at string) {
	id := pkg + " " + name
	if w.busy[id] {
		w.marks[at] = true
		return
	}
	w.busy[id] = true
	defer delete(w.busy, id)
	for _, f := range w.files[pkg] {
		for _, d := range f.Decls {
			if field, ok := d.(*ast.Field); ok && labelOf(field) == name {
				w.expr(scope{pkg, f}, field.Value, at)
			}
		}
	}
}

func (w *marker) expr(s scope, e ast.Expr, at string) {
	switch e := e.(type) {
	case *ast.StructLit:
		for _, d := range e.Elts {
			w.decl(s, d, at)
		}
	case *ast.ListLit:
		for _, elt := range e.Elts {
			switch elt := elt.(type) {
			case *ast.Ellipsis:
				if elt.Type != nil {
					w.expr(s, elt.Type, at+"[]")
				}
			default:
				// [_, ...] asks for a length, which visitList judges.
				if !isTop(elt) {
					w.marks[at] = true
				}
			}
		}
	case *ast.ParenExpr:
		w.expr(s, e.X, at)
	case *ast.BinaryExpr:
		if e.Op != token.AND {
			w.marks[at] = true
			return
		}
		w.expr(s, e.X, at)
		w.expr(s, e.Y, at)
	case *ast.Ident:
		if strings.HasPrefix(e.Name, "#") {
			w.definition(s.pkg, e.Name, at)
		}
	case *ast.SelectorExpr:
		pkg, isImport := e.X.(*ast.Ident)
		name, isName := e.Sel.(*ast.Ident)
		if !isImport || !isName {
			w.marks[at] = true
			return
		}
		for spec := range s.file.ImportSpecs() {
			if p, err := strconv.Unquote(spec.Path.Value); err == nil && importName(spec) == pkg.Name {
				w.definition(p, name.Name, at)
			}
		}
	case *ast.CallExpr:
		// The lengths of lists are judged by visitList.
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok {
			if name, ok := sel.Sel.(*ast.Ident); ok && (name.Name == "MaxItems" || name.Name == "MinItems") {
				return
			}
		}
		w.marks[at] = true
	}
}

func (w *marker) decl(s scope, d ast.Decl, at string) {
	switch d := d.(type) {
	case *ast.Comprehension, *ast.LetClause:
		w.marks[at] = true
	case *ast.EmbedDecl:
		w.expr(s, d.Expr, at)
	case *ast.Field:
		if pattern, ok := d.Label.(*ast.ListLit); ok {
			if !anyString(pattern) {
				w.marks[at] = true
				return
			}
			w.expr(s, d.Value, at+".*")
			return
		}
		if name := labelOf(d); name != "" {
			w.expr(s, d.Value, strings.TrimPrefix(at+"."+name, "."))
		}
	}
}

// anyString reports whether a pattern is [string] or [Name=string].
func anyString(pattern *ast.ListLit) bool {
	if len(pattern.Elts) != 1 {
		return false
	}
	e := pattern.Elts[0]
	if alias, ok := e.(*ast.Alias); ok {
		e = alias.Expr
	}
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "string"
}

// labelOf is the name of a field, a definition with its #.
func labelOf(f *ast.Field) string {
	name, _, err := ast.LabelName(f.Label)
	if err != nil {
		return ""
	}
	return name
}
