package render

import (
	"fmt"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/literal"

	"github.com/coppice-dev/coppice/internal/diag"
)

// check judges an object by its kind's CUE schema. It reports every fault:
// each field is judged on its own.
func (c *checker) check(o Object) diag.List {
	s := c.shapes[o.GVK.String()]
	if s == nil {
		return nil
	}
	r := &review{checker: c, object: o}
	r.visit(s, o.Value, nil)
	if len(r.findings) == 0 && len(o.broken) == 0 {
		r.whole(s)
	}
	return r.findings
}

// review is the check of one object.
type review struct {
	*checker
	object   Object
	findings diag.List
}

func (r *review) report(s *shape, code string, pos diag.Position, path []any, message, help string) {
	f := diag.Finding{
		Code: code, Message: message, Help: help, Pos: pos,
		Object: r.object.ID(), Path: PathString(path),
	}
	if s != nil && s.pos.IsValid() {
		f.Related = []diag.Related{{Pos: s.pos, Message: "the schema declares it here"}}
	}
	r.findings = append(r.findings, f)
}

func (r *review) visit(s *shape, data any, path []any) {
	if r.object.broken[pathKey(path)] {
		return
	}
	switch data := data.(type) {
	case map[string]any:
		if s.kind == cue.StructKind {
			r.visitStruct(s, data, path)
			return
		}
	case []any:
		if s.kind == cue.ListKind {
			r.visitList(s, data, path)
			return
		}
	case string:
		if s.enum != nil {
			r.visitEnum(s, data, path)
			return
		}
	}
	if kindOf(data)&s.kind == 0 {
		r.report(s, CodeType, r.object.Position(path...), path,
			fmt.Sprintf("%s must be %s, not %s", last(path), kindName(s.kind), kindName(kindOf(data))), s.help())
		return
	}
	if s.constrained {
		if message := r.leaf(s, data); message != "" {
			r.report(s, CodeConstraint, r.object.Position(path...), path, message, s.help())
		}
	}
}

func (r *review) visitStruct(s *shape, data map[string]any, path []any) {
	for _, name := range sortedKeys(data) {
		p := child(path, name)
		switch f := s.fields[name]; {
		case f != nil:
			r.visit(f, data[name], p)
		case s.other != nil:
			r.visit(s.other, data[name], p)
		case !s.open && !s.value.Allows(cue.Str(name)):
			r.unknown(s, name, p)
		}
	}
	for _, name := range s.required {
		p := child(path, name)
		if _, ok := data[name]; ok || r.object.broken[pathKey(p)] {
			continue
		}
		r.report(s.fields[name], CodeRequired, r.object.Position(path...), p,
			fmt.Sprintf("%s is missing", PathString(p)), "add "+name+s.fields[name].example())
	}
}

// unknown reports a field that the schema doesn't have.
func (r *review) unknown(s *shape, name string, path []any) {
	var help string
	known := sortedKeys(s.fields)
	switch suggestion := nearest(name, known); {
	case suggestion != "":
		help = fmt.Sprintf("did you mean %s?", suggestion)
	case len(known) == 0:
		help = "remove it"
	default:
		help = "the fields here are " + strings.Join(known, ", ")
	}
	r.report(s, CodeUnknownField, r.object.KeyPosition(path...), path,
		fmt.Sprintf("%s has no field %s", where(r.object, path[:len(path)-1]), name), help)
}

func (r *review) visitList(s *shape, data []any, path []any) {
	if s.items != nil {
		for i, item := range data {
			r.visit(s.items, item, child(path, i))
		}
	}
	if !s.constrained {
		return
	}
	// The elements have been judged; what is left is the list's own constraint,
	// which is judged on a list of that length with elements that say nothing.
	for _, message := range r.listConstraints(s, data) {
		r.report(s, CodeConstraint, r.object.Position(path...), path, last(path)+" "+message, s.help())
	}
}

// listConstraints judges the length of a list.
func (r *review) listConstraints(s *shape, data []any) []string {
	var out []string
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
		case strings.HasSuffix(name, "MaxItems") && int64(len(data)) > limit:
			out = append(out, fmt.Sprintf("has %d elements, more than %d", len(data), limit))
		case strings.HasSuffix(name, "MinItems") && int64(len(data)) < limit:
			out = append(out, fmt.Sprintf("has %d elements, fewer than %d", len(data), limit))
		}
	}
	return out
}

func (r *review) visitEnum(s *shape, data string, path []any) {
	for _, allowed := range s.enum {
		if data == allowed {
			return
		}
	}
	help := "use one of " + strings.Join(s.enum, ", ")
	if suggestion := nearest(data, s.enum); suggestion != "" {
		help = fmt.Sprintf("did you mean %q? Allowed: %s", suggestion, strings.Join(s.enum, ", "))
	}
	r.report(s, CodeEnum, r.object.Position(path...), path, fmt.Sprintf("%q is not a value of %s", data, last(path)), help)
}

// leaf judges a value by CUE itself and returns what is wrong with it, or "".
func (r *review) leaf(s *shape, data any) string {
	key := leafKey{shape: s}
	switch data.(type) {
	case string, int64, float64, bool:
		key.value = data
		if message, ok := r.leaves[key]; ok {
			return message
		}
	}
	v := s.value.Unify(r.ctx.Encode(data))
	message := ""
	if err := v.Validate(cue.Concrete(true)); err != nil {
		message = leafMessage(data, err)
	}
	if key.value != nil {
		r.leaves[key] = message
	}
	return message
}

// leafMessage picks the error that explains the most. A miss of a disjunction
// comes as one error for each branch, those of other types among them.
func leafMessage(data any, err error) string {
	var first string
	for _, e := range errors.Errors(err) {
		format, args := e.Msg()
		text := oneLine(fmt.Sprintf(format, args...))
		if strings.Contains(text, "empty disjunction") || strings.Contains(text, "mismatched types") {
			continue
		}
		if first == "" {
			first = text
		}
	}
	shown := fmt.Sprintf("%v", data)
	if text, ok := data.(string); ok {
		shown = fmt.Sprintf("%q", text)
	}
	_, bound, ok := strings.Cut(first, "(out of bound ")
	switch bound = strings.TrimSuffix(bound, ")"); {
	case ok && strings.HasPrefix(bound, "=~"):
		pattern := strings.TrimPrefix(bound, "=~")
		if text, err := literal.Unquote(pattern); err == nil {
			pattern = text
		}
		if meaning := patternMeaning(pattern); meaning != "" {
			return fmt.Sprintf("%s is not %s", shown, meaning)
		}
		return fmt.Sprintf("%s doesn't match the pattern %s", shown, pattern)
	case ok:
		return fmt.Sprintf("%s is out of bounds, it must be %s", shown, bound)
	case first == "":
		return fmt.Sprintf("%s is not allowed here", shown)
	}
	return fmt.Sprintf("%s: %s", shown, first)
}

// whole judges the object at once, for rules that span several fields.
func (r *review) whole(s *shape) {
	v := s.value.Unify(r.ctx.Encode(r.object.Value))
	err := v.Validate(cue.Concrete(true))
	if err == nil {
		return
	}
	skip := len(s.value.Path().Selectors())
	w := &walker{object: r.object}
	for _, e := range errors.Errors(err) {
		path := w.resolve(e.Path(), min(skip, len(e.Path())))
		format, args := e.Msg()
		r.report(s, CodeConstraint, r.object.Position(path...), path, oneLine(fmt.Sprintf(format, args...)), "")
		if p := e.Position(); p.IsValid() {
			f := &r.findings[len(r.findings)-1]
			f.Related[0].Pos = diag.Position{File: SchemaModule + p.Filename(), Line: p.Line(), Col: p.Column()}
		}
	}
}

// help describes what the place takes.
func (s *shape) help() string {
	switch {
	case len(s.enum) > 0:
		return "use one of " + strings.Join(s.enum, ", ")
	case s.doc != "":
		return s.doc
	}
	return "write " + kindName(s.kind)
}

// example shows how a missing field could be written.
func (s *shape) example() string {
	switch {
	case len(s.enum) > 0:
		return fmt.Sprintf(": %q, or another of %s", s.enum[0], strings.Join(s.enum, ", "))
	case s.kind == cue.StructKind && len(s.required) > 0:
		return " with " + strings.Join(s.required, ", ")
	}
	return ", " + kindName(s.kind)
}

// where names a struct for people: the object itself or the field that holds it.
func where(o Object, path []any) string {
	if len(path) == 0 {
		return "a " + o.GVK.Kind
	}
	return PathString(path)
}

// last names the field that a path ends in, or the list that its element is in.
func last(path []any) string {
	for i := len(path) - 1; i >= 0; i-- {
		if name, ok := path[i].(string); ok {
			if i < len(path)-1 {
				return "an element of " + name
			}
			return name
		}
	}
	return "the object"
}

func kindOf(data any) cue.Kind {
	switch data.(type) {
	case nil:
		return cue.NullKind
	case bool:
		return cue.BoolKind
	case string:
		return cue.StringKind
	case int64:
		return cue.IntKind
	case float64:
		return cue.FloatKind
	case []any:
		return cue.ListKind
	case map[string]any:
		return cue.StructKind
	}
	return cue.BottomKind
}

// kindName names what a kind of value is called in CUE and in YAML alike.
func kindName(k cue.Kind) string {
	var names []string
	for _, n := range []struct {
		kind cue.Kind
		name string
	}{
		{cue.StructKind, "an object"}, {cue.ListKind, "a list"}, {cue.StringKind, "a string"},
		{cue.BoolKind, "true or false"}, {cue.NullKind, "null"},
	} {
		if k&n.kind != 0 {
			names = append(names, n.name)
		}
	}
	switch {
	case k&cue.NumberKind == cue.NumberKind, k&cue.NumberKind == cue.FloatKind:
		names = append(names, "a number")
	case k&cue.IntKind != 0:
		names = append(names, "a whole number")
	}
	return strings.Join(names, " or ")
}
