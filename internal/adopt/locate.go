package adopt

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
)

// locate finds the text that states a change's value and the edit that makes it say
// the live one. why says why there is none.
func (a *adopter) locate(c Change) (e edit, why string) {
	if len(c.Path) == 0 {
		return e, "the object isn't in the cluster; remove its declaration if that is meant"
	}
	if c.Path[len(c.Path)-1] == "userData" {
		return e, "user data may hold secrets, which are never written to a diff"
	}
	if plan.Secret(c.Path, c.Live) {
		return e, "it looks like a credential, which is never written to Git"
	}
	pos := c.Object.Position(c.Path...)
	if !pos.IsValid() || pos.Line == 0 {
		return e, "it isn't known where it is declared"
	}
	if strings.HasPrefix(pos.File, render.SchemaModule+"/") || !strings.HasSuffix(pos.File, ".cue") {
		return e, "it comes from " + pos.File
	}
	f, text, err := a.parse(pos.File)
	if err != nil {
		return e, err.Error()
	}
	found := find(f, pos)
	if found == nil {
		return e, "what stands at " + pos.String() + " is no plain field"
	}
	if i := slices.IndexFunc(found.around, func(n ast.Node) bool { _, ok := n.(*ast.Comprehension); return ok }); i >= 0 {
		return e, "a comprehension makes it, at " + pos.String()
	}
	git, _ := plan.ValueAt(c.Object.Value, c.Path)
	stated, why := value(found.expr)
	if why != "" {
		return e, why + ", at " + pos.String()
	}
	if differs(nil, stated, git) != nil || (stated == nil) != (git == nil) {
		return e, "another place decides its value than " + pos.String()
	}
	if c.Live == nil {
		return a.remove(pos.File, text, found, c)
	}
	from, to := found.expr.Pos().Offset(), found.expr.End().Offset()
	if strings.Contains(string(text[from:to]), "//") && !isScalar(found.expr) {
		return e, "there are comments in the list or struct that would be replaced, at " + pos.String()
	}
	return edit{file: pos.File, from: from, to: to, text: printed(c.Live, git, text, from, to)}, ""
}

func (a *adopter) parse(name string) (*ast.File, []byte, error) {
	text, ok := a.texts[name]
	if !ok {
		var err error
		if text, err = fs.ReadFile(a.tree, name); err != nil {
			return nil, nil, fmt.Errorf("%s can't be read: %w", name, err)
		}
		a.texts[name] = text
	}
	f, err := parser.ParseFile(name, text, parser.ParseComments)
	if err != nil {
		return nil, nil, fmt.Errorf("%s can't be parsed: %w", name, err)
	}
	return f, text, nil
}

// site is an expression in a file.
type site struct {
	// field is the one whose value expr is, nil for a list's element.
	field *ast.Field
	expr  ast.Expr
	// around are the nodes that it stands in, the innermost last.
	around []ast.Node
}

// find returns what stands at a position: the field whose name or value begins
// there, or the element.
func find(f *ast.File, pos diag.Position) *site {
	var stack []ast.Node
	var out *site
	at := func(p token.Pos) bool { return p.IsValid() && p.Line() == pos.Line && p.Column() == pos.Col }
	take := func(s site) {
		s.around = slices.Clone(stack)
		out = &s
	}
	ast.Walk(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if _, named := n.Label.(*ast.ListLit); !named && (at(n.Label.Pos()) || at(n.Value.Pos())) {
				take(site{field: n, expr: n.Value})
			}
		case *ast.ListLit:
			for _, elt := range n.Elts {
				if at(elt.Pos()) {
					stack = append(stack, n)
					take(site{expr: elt})
					stack = stack[:len(stack)-1]
				}
			}
		}
		stack = append(stack, n)
		return true
	}, func(ast.Node) { stack = stack[:len(stack)-1] })
	return out
}

// value reads an expression that states its value outright; why says what it is
// otherwise.
func value(e ast.Expr) (v any, why string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		switch e.Kind {
		case token.NULL:
			return nil, ""
		case token.TRUE, token.FALSE:
			return e.Kind == token.TRUE, ""
		case token.STRING:
			s, err := literal.Unquote(e.Value)
			if err != nil {
				return nil, "it is a string with something in it that is worked out"
			}
			return s, ""
		case token.INT, token.FLOAT:
			var n literal.NumInfo
			if err := literal.ParseNum(e.Value, &n); err != nil {
				return nil, "it is no plain number"
			}
			return number(n.String())
		}
	case *ast.UnaryExpr:
		if lit, ok := e.X.(*ast.BasicLit); ok && e.Op == token.SUB && (lit.Kind == token.INT || lit.Kind == token.FLOAT) {
			return number("-" + lit.Value)
		}
	case *ast.Ident:
		switch e.Name {
		case "true", "false":
			return e.Name == "true", ""
		case "null":
			return nil, ""
		}
		return nil, "it comes from " + e.Name
	case *ast.SelectorExpr:
		return nil, "it comes from a reference"
	case *ast.ListLit:
		out := []any{}
		for _, elt := range e.Elts {
			v, why := value(elt)
			if why != "" {
				return nil, "the list holds what is worked out"
			}
			out = append(out, v)
		}
		return out, ""
	case *ast.StructLit:
		out := map[string]any{}
		for _, d := range e.Elts {
			field, ok := d.(*ast.Field)
			if !ok {
				return nil, "the struct holds what is worked out"
			}
			name, _, err := ast.LabelName(field.Label)
			v, why := value(field.Value)
			if err != nil || why != "" {
				return nil, "the struct holds what is worked out"
			}
			out[name] = v
		}
		return out, ""
	}
	return nil, "it is an expression"
}

func number(text string) (any, string) {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n, ""
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, "it is no plain number"
	}
	return f, ""
}

func isScalar(e ast.Expr) bool {
	switch e.(type) {
	case *ast.ListLit, *ast.StructLit:
		return false
	}
	return true
}

// remove is the edit that takes a field away: its line if it stands alone there,
// otherwise its text and the comma.
func (a *adopter) remove(file string, text []byte, s *site, c Change) (edit, string) {
	if s.field == nil {
		return edit{}, "an element of a list can't be removed alone"
	}
	if name, _, err := ast.LabelName(s.field.Label); err != nil || name != c.Path[len(c.Path)-1] {
		return edit{}, "another field, " + name + ", states it"
	}
	// In a: b: c: 1 the whole chain states c.
	field, elts := s.field, []ast.Decl(nil)
	for i := len(s.around) - 1; i >= 0; i-- {
		switch n := s.around[i].(type) {
		case *ast.StructLit:
			if !n.Lbrace.IsValid() {
				continue
			}
			elts = n.Elts
		case *ast.Field:
			field = n
			continue
		case *ast.File:
			elts = n.Decls
		}
		break
	}
	at := slices.IndexFunc(elts, func(d ast.Decl) bool { return d == ast.Decl(field) })
	if at < 0 {
		return edit{}, "it stands where nothing can be removed"
	}
	from, to := field.Pos().Offset(), field.End().Offset()
	start := lineStart(text, from)
	end := to
	for end < len(text) && text[end] != '\n' {
		end++
	}
	before, after := strings.TrimSpace(string(text[start:from])), strings.Trim(string(text[to:end]), " \t\r,")
	switch {
	case before == "" && (after == "" || strings.HasPrefix(after, "//")):
		// Its own comment goes with it.
		for _, group := range ast.Comments(field) {
			if group.Doc && group.Pos().IsValid() {
				start = min(start, lineStart(text, group.Pos().Offset()))
			}
		}
		return edit{file: file, from: start, to: min(end+1, len(text))}, ""
	case at+1 < len(elts) && elts[at+1].Pos().Line() == field.Pos().Line():
		return edit{file: file, from: from, to: elts[at+1].Pos().Offset()}, ""
	case at > 0:
		return edit{file: file, from: elts[at-1].End().Offset(), to: to}, ""
	}
	return edit{file: file, from: from, to: to}, ""
}

// printed writes a value as CUE in the manner of the text that it replaces.
func printed(live, git any, text []byte, from, to int) string {
	_, wasNumber := git.(int64)
	if s, ok := live.(string); ok && wasNumber {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return strconv.FormatInt(n, 10)
		}
	}
	if list, ok := live.([]any); ok && strings.Contains(string(text[from:to]), "\n") {
		in := indent(text, from)
		var b strings.Builder
		b.WriteString("[\n")
		for _, e := range list {
			b.WriteString(in + "\t" + cue(e) + ",\n")
		}
		b.WriteString(in + "]")
		return b.String()
	}
	return cue(live)
}

// cue writes a JSON value in one line.
func cue(v any) string {
	switch v := v.(type) {
	case string:
		return literal.String.Quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = cue(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		// key, operator, values: the order in which people write requirements is the
		// alphabet's.
		slices.Sort(keys)
		parts := make([]string, len(keys))
		for i, k := range keys {
			name := k
			if !ast.IsValidIdent(k) || strings.HasPrefix(k, "_") || strings.HasPrefix(k, "#") {
				name = literal.String.Quote(k)
			}
			parts[i] = name + ": " + cue(v[k])
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("adopt: %s is no JSON value: %v", plan.PathString(nil), err))
	}
	return string(data)
}
