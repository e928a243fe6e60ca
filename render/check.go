package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"

	"github.com/coppice-dev/coppice/internal/diag"
)

// check judges an object by its kind's CUE schema. It reports every fault, since
// each field is judged on its own.
func (c *checker) check(o Object) *review {
	r := &review{checker: c, object: o, shape: c.shapes[o.GVK.String()], copy: o.Value}
	if r.shape != nil && !o.broken[""] {
		r.visit(r.shape, o.Value, nil)
		r.conditions(r.shape, r.copy, nil)
		r.sense()
	}
	return r
}

// review is the check of one object.
type review struct {
	*checker
	object   Object
	shape    *shape
	findings diag.List
	// faulty holds the paths that have findings.
	faulty [][]any
	// mends are what the findings say how to mend, and copy is the object with all of
	// that done; as long as there is nothing to mend, it is the object itself.
	mends []mend
	copy  map[string]any
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
	r.faulty = append(r.faulty, path)
}

// mend notes how a fault that was reported would be mended.
func (r *review) mend(m mend) {
	if len(r.mends) == 0 {
		r.copy = copyTree(r.object.Value).(map[string]any)
	}
	r.mends = append(r.mends, m)
	m.apply(r.copy)
}

// leaveOut mends the fault of a value by leaving it out. An element of a list is
// replaced by one that the schema has nothing against.
func (r *review) leaveOut(path []any) {
	// A budget asks for either where the other one is.
	if stand := map[string]string{"schedule": "@daily", "duration": "1h"}[last(path)]; stand != "" && len(path) > 2 && path[len(path)-3] == "budgets" {
		r.mend(mend{path: path, value: stand, put: true})
		return
	}
	r.mend(mend{path: path, value: r.shape.at(PathString(path)).sample()})
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
	if s.kind == cue.BottomKind {
		// Either the schema names the field only to say why it can't be there, or the
		// place couldn't be taken apart; with a value, CUE can tell.
		if err := s.full.Unify(r.ctx.Encode(data)).Validate(cue.Concrete(true)); err != nil {
			message := oneLine(messageOf(err))
			if name := last(path); !strings.Contains(message, name) {
				message = name + ": " + message
			}
			r.report(s, CodeConstraint, r.object.KeyPosition(path...), path, message, "remove it")
			r.leaveOut(path)
		}
		return
	}
	if kindOf(data)&s.kind == 0 {
		r.report(s, CodeType, r.object.Position(path...), path,
			fmt.Sprintf("%s must be %s, not %s", last(path), kindName(s.kind), kindName(kindOf(data))), s.help())
		r.leaveOut(path)
		return
	}
	if s.constrained {
		if f := r.leaf(s, data); f.message != "" {
			r.reportFault(s, f, r.object.Position(path...), path)
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
		_, written := data[name]
		// A field that was only misspelt is there in the copy.
		if _, meant := lookup(r.copy, p); written || meant || r.object.broken[pathKey(p)] {
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
	elsewhere := r.shape.holders(name)
	r.leaveOut(path)
	switch suggestion := nearest(name, known); {
	case suggestion != "":
		help = fmt.Sprintf("did you mean %s?", suggestion)
		meant := child(path[:len(path)-1], suggestion)
		if _, taken := lookup(r.object.Value, meant); !taken {
			value, _ := lookup(r.object.Value, path)
			r.mend(mend{path: meant, value: value, put: true})
		}
	case len(elsewhere) == 1:
		help = fmt.Sprintf("%s is a field of %s; move it there", name, elsewhere[0])
	case len(known) == 0:
		help = "remove it"
	default:
		help = "the fields here are " + strings.Join(known, ", ")
	}
	r.report(s, CodeUnknownField, r.object.KeyPosition(path...), path,
		fmt.Sprintf("%s has no field %s", where(r.object, path[:len(path)-1]), name), help)
}

// holders lists the structs inside of a shape that have a field of that name, other
// than what the server writes.
func (s *shape) holders(name string) []string {
	var out []string
	var visit func(s *shape, at string)
	visit = func(s *shape, at string) {
		if s.fields[name] != nil && at != "" {
			out = append(out, at)
		}
		for _, f := range sortedKeys(s.fields) {
			if at == "" && (f == "status" || f == "metadata") {
				continue
			}
			visit(s.fields[f], strings.TrimPrefix(at+"."+f, "."))
		}
		if s.items != nil {
			visit(s.items, at+"[]")
		}
	}
	visit(s, "")
	return out
}

func (r *review) visitList(s *shape, data []any, path []any) {
	if s.items != nil {
		for i, item := range data {
			r.visit(s.items, item, child(path, i))
		}
	}
	switch n := len(data); {
	case n > s.maxItems:
		r.mend(mend{path: path, value: data[:s.maxItems], put: true})
		r.report(s, CodeConstraint, r.object.Position(path...), path, fmt.Sprintf("%s has %d elements, more than %d", last(path), n, s.maxItems), s.help())
	case n < s.minItems:
		r.report(s, CodeConstraint, r.object.Position(path...), path, fmt.Sprintf("%s has %d elements, fewer than %d", last(path), n, s.minItems), s.help())
	}
}

func (r *review) visitEnum(s *shape, data string, path []any) {
	for _, allowed := range s.enum {
		if data == allowed {
			return
		}
	}
	r.report(s, CodeEnum, r.object.Position(path...), path, fmt.Sprintf("%q is not a value of %s", data, last(path)), choiceHelp(data, s.enum))
	r.choose(path, data, s.enum)
}

// choose mends a value that isn't among the choices: by the nearest one.
func (r *review) choose(path []any, given string, choices []string) {
	if s := choiceFor(given, choices); s != "" {
		r.mend(mend{path: path, value: s, put: true})
		return
	}
	if _, element := path[len(path)-1].(int); element && len(choices) > 0 {
		r.mend(mend{path: path, value: choices[0], put: true})
		return
	}
	r.leaveOut(path)
}

// choiceHelp says what could stand in place of a value that isn't among the choices.
func choiceHelp(given string, choices []string) string {
	if suggestion := choiceFor(given, choices); suggestion != "" {
		return fmt.Sprintf("did you mean %q? Allowed: %s", suggestion, strings.Join(choices, ", "))
	}
	return "use one of " + strings.Join(choices, ", ")
}

// leaf judges a value by CUE itself.
func (r *review) leaf(s *shape, data any) fault {
	key := leafKey{shape: s}
	switch data.(type) {
	case string, int64, float64, bool:
		key.value = data
		if f, ok := r.leaves[key]; ok {
			return f
		}
	}
	var f fault
	if err := s.value.Unify(r.ctx.Encode(data)).Validate(cue.Concrete(true)); err != nil {
		f = faultOf(data, errors.Errors(err))
	}
	if key.value != nil {
		r.leaves[key] = f
	}
	return f
}

// conditions judges what spans several fields, at each place that the schemas have
// such rules for. They can be decided where the whole definition is unified with a
// part of the object that has no fault of its own.
func (r *review) conditions(s *shape, data any, path []any) {
	if s == nil || s.kind != cue.StructKind && s.kind != cue.ListKind {
		return
	}
	if s.spanning {
		if !r.isGood(s, data) {
			r.search(s, data, path)
		}
		return
	}
	switch data := data.(type) {
	case map[string]any:
		for _, name := range sortedKeys(data) {
			r.conditions(s.field(name), data[name], child(path, name))
		}
	case []any:
		for i, x := range data {
			r.conditions(s.items, x, child(path, i))
		}
	}
}

// isGood reports whether a part of an object fits its whole definition. A value
// with a fault of its own never does.
func (r *review) isGood(s *shape, data any) bool {
	text, err := json.Marshal(data)
	if err != nil {
		return false
	}
	key := leafKey{s, string(text)}
	good, ok := r.good[key]
	if !ok {
		good = s.full.Unify(r.ctx.Encode(data)).Validate(cue.Concrete(true)) == nil
		r.good[key] = good
	}
	return good
}

// search looks for the faults of a part of the object that doesn't fit its
// definition: CUE stops at the first error of a list, so that each part is
// judged on its own, the smallest first. What is found is mended before the rest
// is judged.
func (r *review) search(s *shape, data any, path []any) {
	if s == nil || s.kind != cue.StructKind && s.kind != cue.ListKind || r.object.broken[pathKey(path)] {
		return
	}
	if s.full.Unify(r.ctx.Encode(data)).Validate(cue.Concrete(true)) == nil {
		return
	}
	switch data := data.(type) {
	case map[string]any:
		for _, name := range sortedKeys(data) {
			r.search(s.field(name), data[name], child(path, name))
		}
		if s.other != nil {
			r.entries(s, data, path)
		}
	case []any:
		for i, x := range data {
			r.search(s.items, x, child(path, i))
		}
	}
	for again := true; again; {
		data, ok := lookup(r.copy, path)
		if !ok {
			return
		}
		err := s.full.Unify(r.ctx.Encode(data)).Validate(cue.Concrete(true))
		if err == nil {
			return
		}
		again = r.reportErrors(s, errors.Errors(err), data, path)
	}
}

// entries judges the names of a map, each by a map of its own.
func (r *review) entries(s *shape, data map[string]any, path []any) {
	for _, name := range sortedKeys(data) {
		p := child(path, name)
		if s.fields[name] != nil || r.isFaulty(p) {
			continue
		}
		one := map[string]any{name: data[name]}
		if err := s.full.Unify(r.ctx.Encode(one)).Validate(cue.Concrete(true)); err != nil {
			for _, e := range errors.Errors(err) {
				if slices.Equal(relative(e.Path(), one), []any{name}) {
					f := faultOf(name, []errors.Error{e})
					r.reportFault(s, f, r.object.KeyPosition(p...), p)
					break
				}
			}
		}
	}
}

// isFaulty reports whether a finding is about the value at path, or one around it.
func (r *review) isFaulty(path []any) bool {
	for n := range len(path) + 1 {
		if r.object.broken[pathKey(path[:n])] {
			return true
		}
	}
	return slices.ContainsFunc(r.faulty, func(f []any) bool { return contained(path, f) })
}

// hasFaultyElement reports whether a finding is about an element of the list at path: what
// its rule says of the list follows from that.
func (r *review) hasFaultyElement(path []any) bool {
	return slices.ContainsFunc(r.faulty, func(f []any) bool {
		if len(f) != len(path)+1 {
			return false
		}
		_, element := f[len(path)].(int)
		return element && slices.Equal(f[:len(path)], path)
	})
}

// reportErrors reports what CUE said about a part of the object, errors about one
// place as one finding. It returns whether there was something new in it.
func (r *review) reportErrors(s *shape, errs []errors.Error, data any, path []any) (found bool) {
	byPlace := map[string][]errors.Error{}
	var places [][]any
	for _, e := range errs {
		below := relative(e.Path(), data)
		if byPlace[pathKey(below)] == nil {
			places = append(places, below)
		}
		byPlace[pathKey(below)] = append(byPlace[pathKey(below)], e)
	}
	for _, below := range places {
		at := append(slices.Clone(path), below...)
		if r.isFaulty(at) || len(below) == 0 && found {
			continue
		}
		found = true
		if r.hasFaultyElement(at) {
			r.faulty = append(r.faulty, at)
			r.leaveOut(at)
			continue
		}
		x, ok := lookup(data, below)
		f := faultOf(x, byPlace[pathKey(below)])
		if !ok {
			text := oneLine(messageOf(byPlace[pathKey(below)][0]))
			f = fault{message: PathString(at) + " is missing", pos: f.pos}
			if !strings.Contains(text, "required but not present") {
				f.message = text
			}
			r.report(s.at(PathString(below)).by(f), CodeCondition, r.object.Position(at...), at, f.message, s.at(PathString(below)).help())
			continue
		}
		f.conditional = true
		r.reportFault(s.at(PathString(below)), f, r.object.Position(at...), at)
	}
	return found
}

func (r *review) reportFault(s *shape, f fault, pos diag.Position, path []any) {
	code, help := CodeConstraint, s.help()
	switch {
	case len(f.choices) > 0:
		code, help = CodeEnum, choiceHelp(f.given, f.choices)
	case f.conditional:
		code = CodeCondition
	}
	given, ok := r.object.valueOf(path)
	if better := keyHelp(path, given); ok && better != "" && len(f.choices) == 0 {
		help = better
	}
	r.report(s.by(f), code, pos, path, f.message, help)
	if len(f.choices) > 0 {
		r.choose(path, f.given, f.choices)
	} else {
		r.leaveOut(path)
	}
}

// valueOf is the string at path, if it is the value of a field or the key of a
// requirement, or else the name of a map's entry.
func (o Object) valueOf(path []any) (string, bool) {
	name, _ := path[len(path)-1].(string)
	switch name {
	case "key", "schedule":
		x, _ := lookup(o.Value, path)
		text, ok := x.(string)
		return text, ok
	}
	if isIdentifier(name) && !strings.Contains(PathString(path), "Reserved") {
		return "", false
	}
	return name, name != ""
}

// lookup follows a path into a JSON tree.
func lookup(data any, path []any) (any, bool) {
	for _, e := range path {
		switch e := e.(type) {
		case string:
			m, ok := data.(map[string]any)
			if !ok {
				return nil, false
			}
			if data, ok = m[e]; !ok {
				return nil, false
			}
		case int:
			l, ok := data.([]any)
			if !ok || e >= len(l) {
				return nil, false
			}
			data = l[e]
		}
	}
	return data, true
}
