package render

import (
	"cmp"
	"io/fs"
	"path"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/load"

	"github.com/coppice-dev/coppice/internal/diag"
)

// shape is one place of a CUE definition, taken apart so that objects can be
// checked against it field by field.
type shape struct {
	value cue.Value
	pos   diag.Position
	kind  cue.Kind

	// fields, for a struct, are the fields that it names; other is the shape of
	// any further ones. Without either, open says whether further ones may be.
	fields map[string]*shape
	other  *shape
	open   bool
	// required lists the fields that must be there, in order.
	required []string

	// items is the shape of a list's elements.
	items *shape
	// enum lists the only strings that the place takes.
	enum []string
	// constrained says that the kind alone doesn't decide.
	constrained bool
	doc         string
}

// checker checks objects against the schemas. It isn't safe for concurrent use.
type checker struct {
	ctx    *cue.Context
	shapes map[string]*shape
	// leaves remembers the verdict on a value at a place. A fleet says the same
	// few things over and over.
	leaves map[leafKey]string
}

type leafKey struct {
	shape *shape
	value any
}

// newChecker compiles the definitions of all kinds from the schemas' files.
func newChecker(definitions fs.FS) (*checker, error) {
	c := &checker{ctx: newContext(), shapes: map[string]*shape{}, leaves: map[leafKey]string{}}
	t := newTree(definitions)
	if _, err := fs.Stat(definitions, moduleFile); err != nil {
		m := mount{module: SchemaModule}
		t.replaced[moduleFile] = m.moduleFile()
	}
	packages := map[string]cue.Value{}
	for _, k := range kinds() {
		pkg, ok := packages[k.pkg]
		if !ok {
			dir := "./" + strings.TrimPrefix(k.pkg, SchemaModule+"/")
			inst := load.Instances([]string{dir}, &load.Config{FS: t, Dir: "/", Registry: mountRegistry{t}, Env: []string{}})[0]
			if inst.Err != nil {
				return nil, inst.Err
			}
			pkg = c.ctx.BuildInstance(inst)
			if err := pkg.Err(); err != nil {
				return nil, err
			}
			packages[k.pkg] = pkg
		}
		def := pkg.LookupPath(k.path())
		if err := def.Err(); err != nil {
			return nil, err
		}
		c.shapes[k.gvk.String()] = compileShape(def)
	}
	return c, nil
}

// compileShape takes a definition apart.
func compileShape(v cue.Value) *shape {
	s := &shape{value: v, kind: v.IncompleteKind(), pos: schemaPosition(v), doc: firstSentence(v)}
	switch s.kind {
	case cue.StructKind:
		s.compileFields()
	case cue.ListKind:
		if items := v.LookupPath(cue.MakePath(cue.AnyIndex)); items.Exists() {
			s.items = compileShape(items)
			s.items.doc = cmp.Or(s.items.doc, s.doc)
		}
		op, _ := v.Expr()
		s.constrained = op != cue.NoOp
	case cue.StringKind:
		s.enum = enumOf(v)
		op, args := v.Expr()
		s.constrained = s.enum == nil && (op != cue.NoOp || len(args) != 1 || v.IsConcrete())
	case cue.BoolKind, cue.NullKind:
	default:
		s.constrained = true
	}
	return s
}

func (s *shape) compileFields() {
	s.fields = map[string]*shape{}
	fields, err := s.value.Fields(cue.Optional(true))
	if err != nil {
		s.open = true
		return
	}
	for fields.Next() {
		sel := fields.Selector()
		if sel.LabelType() != cue.StringLabel {
			continue
		}
		f := compileShape(fields.Value())
		s.fields[sel.Unquoted()] = f
		if sel.ConstraintType() == cue.RequiredConstraint {
			s.required = append(s.required, sel.Unquoted())
		}
	}
	if other := s.value.LookupPath(cue.MakePath(cue.AnyString)); other.Exists() {
		s.other = compileShape(other)
		s.other.doc = cmp.Or(s.other.doc, s.doc)
	}
	s.open = s.other == nil && s.value.Allows(cue.Str("any-name-at-all"))
}

// enumOf lists the strings of a disjunction of concrete strings, or nil.
func enumOf(v cue.Value) []string {
	op, args := v.Expr()
	if op == cue.AndOp {
		for _, a := range args {
			if e := enumOf(a); e != nil {
				return e
			}
		}
		return nil
	}
	if op != cue.OrOp {
		return nil
	}
	var out []string
	for _, a := range args {
		if nested := enumOf(a); nested != nil {
			out = append(out, nested...)
			continue
		}
		text, err := a.String()
		if err != nil {
			return nil
		}
		out = append(out, text)
	}
	return out
}

// schemaPosition is where the schema declares the place.
func schemaPosition(v cue.Value) diag.Position {
	pos := v.Pos()
	if field, ok := v.Source().(*ast.Field); ok {
		pos = field.Label.Pos()
	}
	if !pos.IsValid() {
		return diag.Position{}
	}
	return diag.Position{
		File: path.Join(SchemaModule, strings.TrimPrefix(pos.Filename(), "/")),
		Line: pos.Line(), Col: pos.Column(),
	}
}

// firstSentence is the first sentence of a field's documentation.
func firstSentence(v cue.Value) string {
	for _, group := range v.Doc() {
		text := oneLine(group.Text())
		if i := strings.Index(text, ". "); i >= 0 {
			text = text[:i+1]
		}
		if text != "" {
			return text
		}
	}
	return ""
}
