package render

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// openSchemas rewrites a file of the schemas so that it constrains nothing:
// types, bounds and leaves go, every field that stays is optional unless it has a
// concrete value, and every struct is open. The nesting of structs and lists stays
// as it is, so that a definition that an author builds on one of the schemas'
// allows the same fields at every depth.
//
// The author's tree is evaluated against the schemas in this form, and the
// values that come out are checked against the real ones afterwards. Thus every
// value's conjuncts are the author's own, which gives exact positions, and one
// field that the schema refuses doesn't hide another: CUE's evaluator stops
// reporting a struct's fields at its first conflict.
func openSchemas(f *ast.File) {
	o := opener{}
	ast.Walk(f, func(n ast.Node) bool {
		if alias, ok := n.(*ast.Alias); ok {
			o[alias.Ident.Name] = true
		}
		return true
	}, nil)
	f.Decls = dropUnusedImports(o.decls(f.Decls))
}

// opener opens a file. It holds the names that the file gives to labels, as in
// [Name=string]: they stand for what the author wrote.
type opener map[string]bool

// decls opens the declarations of a struct or file. It changes fields in
// place, because identifiers elsewhere in the file point to them.
func (o opener) decls(in []ast.Decl) []ast.Decl {
	var out []ast.Decl
	for _, d := range in {
		switch d := d.(type) {
		case *ast.Package, *ast.ImportDecl, *ast.CommentGroup, *ast.Attribute:
			out = append(out, d)
		case *ast.Field:
			d.Value = o.expr(d.Value)
			_, pattern := d.Label.(*ast.ListLit)
			if pattern || d.Constraint != token.ILLEGAL {
				if isTop(d.Value) {
					continue
				}
				if !pattern {
					d.Constraint = token.OPTION
				}
			}
			out = append(out, d)
		case *ast.EmbedDecl:
			if d.Expr = o.expr(d.Expr); !isTop(d.Expr) {
				out = append(out, d)
			}
		}
	}
	return out
}

func (o opener) expr(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.StructLit:
		e.Elts = append(o.decls(e.Elts), &ast.Ellipsis{})
		return e
	case *ast.BasicLit:
		return e
	case *ast.ParenExpr:
		return o.expr(e.X)
	case *ast.Ident:
		if isDefinition(e.Name) || o[e.Name] {
			return e
		}
	case *ast.SelectorExpr:
		if id, ok := e.Sel.(*ast.Ident); ok && isDefinition(id.Name) {
			return e
		}
	case *ast.ListLit:
		for i, elt := range e.Elts {
			if rest, ok := elt.(*ast.Ellipsis); ok {
				if rest.Type == nil {
					return ast.NewIdent("_")
				}
				if rest.Type = o.expr(rest.Type); isTop(rest.Type) {
					return ast.NewIdent("_")
				}
				continue
			}
			e.Elts[i] = o.expr(elt)
		}
		return e
	case *ast.BinaryExpr:
		if e.Op != token.AND {
			break
		}
		e.X, e.Y = o.expr(e.X), o.expr(e.Y)
		switch {
		case isTop(e.X):
			return e.Y
		case isTop(e.Y):
			return e.X
		}
		return e
	}
	return ast.NewIdent("_")
}

// withoutConditions removes comprehensions from a file of the schemas. What is
// left of a definition can be taken apart: as long as a condition such as
// `if operator == "In"` can't be decided, CUE knows nothing about the struct.
func withoutConditions(f *ast.File) {
	keep := func(decls []ast.Decl) []ast.Decl {
		return slices.DeleteFunc(decls, func(d ast.Decl) bool {
			if embedded, ok := d.(*ast.EmbedDecl); ok {
				_, ok = embedded.Expr.(*ast.Comprehension)
				return ok
			}
			_, ok := d.(*ast.Comprehension)
			return ok
		})
	}
	ast.Walk(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructLit); ok {
			s.Elts = keep(s.Elts)
		}
		return true
	}, nil)
	f.Decls = dropUnusedImports(keep(f.Decls))
}

func isTop(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// isDefinition reports whether an identifier names a definition or a hidden
// field, both of which the opened file still has.
func isDefinition(name string) bool {
	return strings.HasPrefix(name, "#") || (strings.HasPrefix(name, "_") && name != "_" && !strings.HasPrefix(name, "__"))
}

// dropUnusedImports removes imports that nothing refers to any more, which CUE
// treats as errors.
func dropUnusedImports(decls []ast.Decl) []ast.Decl {
	isBody := func(d ast.Decl) bool {
		switch d.(type) {
		case *ast.Package, *ast.ImportDecl, *ast.CommentGroup, *ast.Attribute:
			return false
		}
		return true
	}
	if !slices.ContainsFunc(decls, isBody) {
		// The loader also reads files just to learn their imports.
		return decls
	}
	used := map[string]bool{}
	for _, d := range decls {
		if _, ok := d.(*ast.ImportDecl); ok {
			continue
		}
		ast.Walk(d, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok {
					used[id.Name] = true
				}
			}
			return true
		}, nil)
	}
	var out []ast.Decl
	for _, d := range decls {
		imports, ok := d.(*ast.ImportDecl)
		if !ok {
			out = append(out, d)
			continue
		}
		kept := &ast.ImportDecl{Import: imports.Import, Lparen: imports.Lparen, Rparen: imports.Rparen}
		for _, spec := range imports.Specs {
			if used[importName(spec)] {
				kept.Specs = append(kept.Specs, spec)
			}
		}
		if len(kept.Specs) > 0 {
			out = append(out, kept)
		}
	}
	return out
}

// importName is the identifier by which a file refers to an import.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	return importPath(spec).Qualifier
}

// importPath is what an import names, or nothing if that isn't a string.
func importPath(spec *ast.ImportSpec) ast.ImportPath {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return ast.ImportPath{}
	}
	return ast.ParseImportPath(p)
}
