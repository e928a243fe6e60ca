package render

import (
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/coppice-dev/coppice/internal/diag"
)

// holes are what is taken out of the author's files, so that the rest of them can be
// evaluated: CUE compiles nothing of a package in which one name can't be resolved.
// Where a name was, there is an error that isn't reported a second time.
type holes struct {
	// names are the places of names that can't be resolved, imports those of imports.
	names, imports map[diag.Position]bool
	// named says that a name was cut, other than those of imports.
	named bool
	// files are those that are left out, text what they hold.
	files map[string]bool
	text  []string
	// unread says that files are missing of which nobody knows what they hold.
	unread bool
}

// maxPasses bounds how often a package is loaded with holes. Three are enough for most
// mistakes of the author's: one each for imports, syntax and names.
const maxPasses = 6

// cut makes holes of what findings are about. It returns which of the findings are
// to be told, and false if the package can't be evaluated whatever is cut.
func (t *tree) cut(findings diag.List) (told diag.List, ok bool) {
	h := &t.holes
	if h.names == nil {
		h.names, h.imports = map[diag.Position]bool{}, map[diag.Position]bool{}
	}
	count := func() int { return len(h.names) + len(h.imports) + len(h.files) }
	before, named := count(), h.named
	if len(t.refused) > 0 {
		return findings, t.omitRefused()
	}
	for _, f := range findings {
		switch {
		case f.Severity != diag.Error:
		case !f.Pos.IsValid():
			return findings, false
		case f.Code == CodeImport && !strings.Contains(f.Message, "import cycle"):
			h.imports[f.Pos] = true
		case strings.HasPrefix(f.Message, unusedImport):
			h.imports[f.Pos] = true
			if named {
				// What used it was cut.
				continue
			}
		case isUnresolved(f.Message):
			h.names[f.Pos], h.named = true, true
			if h.mayDeclare(unresolvedName(f.Message)) {
				continue
			}
		case f.Code != CodeSyntax || !h.files[f.Pos.File] && !t.leaveOut(f.Pos.File):
			return findings, false
		}
		told = append(told, f)
	}
	return told, count() > before
}

// unusedImport is how CUE begins to say that nothing refers to an import.
const unusedImport = "imported and not used"

// unresolvedName is the name that a message says isn't found.
func unresolvedName(message string) string {
	return strings.Trim(strings.TrimSuffix(strings.TrimPrefix(message, "reference "), " not found"), `"`)
}

func isUnresolved(message string) bool {
	return strings.HasPrefix(message, "reference ") && strings.HasSuffix(message, "not found")
}

// dig takes what is to be cut out of a file.
func (t *tree) dig(f *ast.File) {
	h := &t.holes
	if len(h.names)+len(h.imports) == 0 {
		return
	}
	gone := map[string]bool{}
	var decls []ast.Decl
	for _, d := range f.Decls {
		imports, ok := d.(*ast.ImportDecl)
		if !ok {
			decls = append(decls, d)
			continue
		}
		imports.Specs = slices.DeleteFunc(imports.Specs, func(spec *ast.ImportSpec) bool {
			cut := h.imports[t.position(spec.Path.Pos())] || h.imports[t.position(spec.Pos())]
			if cut {
				gone[importName(spec)] = true
			}
			return cut
		})
		if len(imports.Specs) > 0 {
			decls = append(decls, imports)
		}
	}
	f.Decls = decls
	isHole := func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return false
		}
		if h.names[t.position(id.Pos())] {
			return true
		}
		_, imported := id.Node.(*ast.ImportSpec)
		if gone[id.Name] && (imported || id.Node == nil) {
			// What is wrong with the import has been told.
			h.names[t.position(id.Pos())] = true
			return true
		}
		return false
	}
	astutil.Apply(f, func(c astutil.Cursor) bool {
		switch n := c.Node().(type) {
		case *ast.ImportDecl:
			return false
		case *ast.SelectorExpr:
			if isHole(n.X) {
				c.Replace(&ast.BottomLit{Bottom: n.X.Pos()})
				return false
			}
		case *ast.Ident:
			if !declares(c.Parent().Node(), n) && isHole(n) {
				c.Replace(&ast.BottomLit{Bottom: n.Pos()})
				return false
			}
		case *ast.Comprehension:
			at := token.NoPos
			for _, clause := range n.Clauses {
				ast.Walk(clause, func(x ast.Node) bool {
					if isHole(x) {
						at = x.Pos()
					}
					return true
				}, nil)
			}
			if !at.IsValid() {
				return true
			}
			// Which objects there would have been isn't known; of an object, or of what
			// objects are made of, it is what it has that isn't.
			if _, inDecls := c.Parent().Node().(*ast.EmbedDecl); !inDecls && declaresObjects(c) {
				c.Delete()
			} else if inDecls {
				c.Replace(&ast.BottomLit{Bottom: at})
			} else {
				c.Replace(&ast.EmbedDecl{Expr: &ast.BottomLit{Bottom: at}})
			}
			return false
		}
		return true
	}, nil)
}

// declares reports whether an identifier is the name of something rather than a reference:
// that of a field, of an alias, or of what is selected.
func declares(parent ast.Node, id *ast.Ident) bool {
	switch p := parent.(type) {
	case *ast.Field:
		return p.Label == id
	case *ast.Alias:
		return p.Ident == id
	case *ast.LetClause:
		return p.Ident == id
	case *ast.ForClause:
		return p.Key == id || p.Value == id
	case *ast.SelectorExpr:
		return p.Sel == id
	case *ast.Package:
		return true
	}
	return false
}

// declaresObjects reports whether a declaration stands at the top of a file, or of
// one of the fields that hold objects.
func declaresObjects(c astutil.Cursor) bool {
	for p := c.Parent(); p != nil; p = p.Parent() {
		switch n := p.Node().(type) {
		case *ast.File:
			return true
		case *ast.Field:
			name := labelOf(n)
			if !slices.ContainsFunc(declarable(), func(k kind) bool { return k.field == name }) {
				return false
			}
		}
	}
	return false
}

// fromHole reports whether an error comes from something that was cut.
func (t *tree) fromHole(e errors.Error) bool {
	if len(t.holes.names) == 0 || !strings.Contains(messageOf(e), "explicit error (_|_ literal)") {
		return false
	}
	own, _ := t.errorPositions(e)
	return slices.ContainsFunc(own, func(p diag.Position) bool { return t.holes.names[p] })
}
