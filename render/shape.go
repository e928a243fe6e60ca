package render

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/coppice-dev/coppice/internal/diag"
)

// shape is one place of a CUE definition, taken apart so that objects can be
// checked against it field by field.
type shape struct {
	// value is the definition at this place without its conditions, full is all of it.
	value, full cue.Value
	pos         diag.Position
	kind        cue.Kind

	// fields, for a struct, are the fields that it names; other is the shape of
	// any further ones. Without either, open says whether further ones may be.
	fields map[string]*shape
	other  *shape
	open   bool
	// required lists the fields that must be there, in order.
	required []string

	// items is the shape of a list's elements, of which there are minItems to maxItems.
	items              *shape
	minItems, maxItems int
	// enum lists the only strings that the place takes.
	enum []string
	// constrained says that the kind alone doesn't decide.
	constrained bool
	// spanning says that there are rules about the struct or list as a whole.
	spanning bool
	doc      string
}

// checker checks objects against the schemas. It isn't safe for concurrent use.
type checker struct {
	ctx    *cue.Context
	shapes map[string]*shape
	// leaves remembers the verdict on a value at a place. A fleet says the same
	// few things over and over.
	leaves map[leafKey]fault
	// good remembers structs and lists, as JSON, that the rules about them allow.
	good map[leafKey]bool
}

type leafKey struct {
	shape *shape
	value any
}

// fault is what is wrong with a value, and where the schema says so. The zero
// fault stands for a good value.
type fault struct {
	message string
	pos     diag.Position
	// choices, if the fault is a miss of a list of strings, is the list.
	given   string
	choices []string
	// conditional says that the value would be good but for another field.
	conditional bool
}

// newChecker compiles the definitions of all kinds from the schemas' files.
func newChecker(definitions fs.FS) (*checker, error) {
	c := &checker{ctx: newContext(), shapes: map[string]*shape{}, leaves: map[leafKey]fault{}, good: map[leafKey]bool{}}
	files := schemaFiles{}
	full, err := c.packages(definitions, func(dir string, f *ast.File) {
		files[path.Join(SchemaModule, dir)] = append(files[path.Join(SchemaModule, dir)], f)
	})
	if err != nil {
		return nil, err
	}
	plain, err := c.packages(definitions, func(_ string, f *ast.File) { withoutConditions(f) })
	if err != nil {
		return nil, err
	}
	for _, k := range kinds() {
		value, all := plain[k.pkg].LookupPath(k.path()), full[k.pkg].LookupPath(k.path())
		if err := value.Err(); err != nil {
			return nil, err
		}
		spanning := marks{}
		spanning.markDefinition(files, k.pkg, "#"+k.def)
		c.shapes[k.gvk.String()] = compileShape(value, all, spanning, "")
	}
	return c, nil
}

// packages builds the packages of all kinds, with each file passed to see, which
// may change it.
func (c *checker) packages(definitions fs.FS, see func(dir string, f *ast.File)) (map[string]cue.Value, error) {
	t := newTree(definitions)
	if _, err := fs.Stat(definitions, moduleFile); err != nil {
		m := mount{module: SchemaModule}
		t.replaced[moduleFile] = m.moduleFile()
	}
	var names []string
	for _, k := range kinds() {
		if !slices.Contains(names, k.pkg) {
			names = append(names, k.pkg)
		}
	}
	dirs := make([]string, len(names))
	for i, name := range names {
		dirs[i] = "./" + strings.TrimPrefix(name, SchemaModule+"/")
	}
	out := map[string]cue.Value{}
	for i, inst := range load.Instances(dirs, &load.Config{
		FS: t, Dir: "/", Registry: mountRegistry{t}, Env: []string{},
		ParseFile: func(name string, src any, cfg parser.Config) (*ast.File, error) {
			f, err := parser.ParseFile(name, src, cfg)
			if f != nil {
				see(path.Dir(name), f)
			}
			return f, err
		},
	}) {
		if inst.Err != nil {
			return nil, inst.Err
		}
		v := c.ctx.BuildInstance(inst)
		if err := v.Err(); err != nil {
			return nil, err
		}
		out[names[i]] = v
	}
	return out, nil
}

// compileShape takes a definition apart, of which v and full stand at a place.
func compileShape(v, full cue.Value, spanning marks, at string) *shape {
	s := &shape{
		value: v, full: full, kind: v.IncompleteKind(), pos: schemaPosition(v), doc: firstSentence(v),
		spanning: spanning[at],
	}
	switch s.kind {
	case cue.StructKind:
		s.compileFields(spanning, at)
	case cue.ListKind:
		each := cue.MakePath(cue.AnyIndex)
		if items := v.LookupPath(each); items.Exists() {
			s.items = compileShape(items, full.LookupPath(each), spanning, at+"[]")
			s.items.doc = cmp.Or(s.items.doc, s.doc)
		}
		s.compileLength()
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

func (s *shape) compileFields(spanning marks, at string) {
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
		name := sel.Unquoted()
		f := compileShape(fields.Value(), s.full.LookupPath(cue.MakePath(sel)), spanning, strings.TrimPrefix(at+"."+name, "."))
		s.fields[name] = f
		// A regular field is filled in by CUE, but not what is required inside.
		if sel.ConstraintType() == cue.RequiredConstraint || sel.ConstraintType() == 0 && len(f.required) > 0 {
			s.required = append(s.required, name)
		}
	}
	if other := s.value.LookupPath(cue.MakePath(cue.AnyString)); other.Exists() {
		s.other = compileShape(other, s.full.LookupPath(cue.MakePath(cue.AnyString)), spanning, at+".*")
		s.other.doc = cmp.Or(s.other.doc, s.doc)
	}
	s.open = s.other == nil && s.value.Allows(cue.Str("any-name-at-all"))
}

// compileLength finds how long a list may be.
func (s *shape) compileLength() {
	s.maxItems = math.MaxInt
	// [_, _, ...] asks for two elements.
	for s.value.LookupPath(cue.MakePath(cue.Index(s.minItems))).Exists() {
		s.minItems++
	}
	_, parts := s.value.Expr()
	for _, part := range parts {
		op, call := part.Expr()
		if op != cue.CallOp || len(call) < 2 {
			continue
		}
		limit, err := call[len(call)-1].Int64()
		if err != nil {
			continue
		}
		switch name := fmt.Sprint(call[0]); {
		case strings.HasSuffix(name, "MaxItems"):
			s.maxItems = min(s.maxItems, int(limit))
		case strings.HasSuffix(name, "MinItems"):
			s.minItems = max(s.minItems, int(limit))
		}
	}
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

// schemaPosition is where the schema declares the place: of several conjuncts the
// one with documentation, which is the one to read.
func schemaPosition(v cue.Value) diag.Position {
	pos := v.Pos()
	if field, ok := v.Source().(*ast.Field); ok {
		return inSchemas(field.Label.Pos())
	}
	op, parts := v.Expr()
	if op == cue.AndOp {
		for _, p := range parts {
			field, ok := p.Source().(*ast.Field)
			if !ok {
				continue
			}
			pos = field.Label.Pos()
			if len(ast.Comments(field)) > 0 {
				break
			}
		}
	}
	return inSchemas(pos)
}

// inSchemas names a position in the files of the schemas.
func inSchemas(pos token.Pos) diag.Position {
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
