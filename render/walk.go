package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"

	"github.com/coppice-dev/coppice/internal/diag"
)

// walker exports one object.
type walker struct {
	*evaluator
	object   Object
	findings diag.List
	// size counts the values of the object.
	size int
}

// maxObjectValues bounds one object. The API server's store takes 1.5 MiB for an
// object (etcd's --max-request-bytes), which is fewer values than this.
const maxObjectValues = 1 << 17

func (w *walker) run(v cue.Value) {
	if p := v.Pos(); !foreign(p.Filename()) {
		// As long as nothing better is known.
		w.note(nil, place{value: w.tree.position(p)})
	}
	value, ok, _ := w.value(v, nil)
	if w.size > maxObjectValues {
		// Nothing else about it is worth knowing, or affordable.
		w.object.Value, w.object.broken = map[string]any{}, map[string]bool{"": true}
		return
	}
	if err := v.Validate(cue.Concrete(true)); err != nil {
		w.remaining(value, err)
	}
	w.joinPauses()
	w.object.Value, _ = value.(map[string]any)
	if w.object.Value == nil {
		w.object.Value = map[string]any{}
		if ok {
			w.breakAt(nil)
			w.fail(CodeType, nil, fmt.Sprintf("%s is declared as %s", w.object.ID(), kindName(v.IncompleteKind())),
				"declare it as an object with the fields of the kind")
		}
	}
	w.identify()
}

// identify fills in what follows from the place where the object is declared.
func (w *walker) identify() {
	apiVersion, kind := w.object.GVK.ToAPIVersionAndKind()
	meta, isStruct := w.object.Value["metadata"].(map[string]any)
	if !isStruct && w.object.Value["metadata"] == nil {
		meta = map[string]any{}
		w.object.Value["metadata"] = meta
	}
	set := func(m map[string]any, want string, path ...any) {
		if m == nil || w.object.broken[pathKey(path)] {
			return
		}
		name := path[len(path)-1].(string)
		got, exists := m[name]
		m[name] = want
		if exists && got != want {
			w.fail(CodeIdentity, path, fmt.Sprintf("%s is %#v, but it is declared as %s", PathString(path), got, w.object.ID()),
				fmt.Sprintf("leave it out, or write %q", want))
		}
	}
	set(w.object.Value, apiVersion, "apiVersion")
	set(w.object.Value, kind, "kind")
	set(meta, w.object.Name, "metadata", "name")
}

func (w *walker) fail(code string, path []any, message, help string) {
	w.findings = append(w.findings, diag.Finding{
		Code: code, Message: message, Help: help,
		Pos:    w.object.Position(path...),
		Object: w.object.ID(),
		Path:   PathString(path),
	})
}

// breakAt notes that the author's value at path couldn't be evaluated.
func (w *walker) breakAt(path []any) {
	if w.object.broken == nil {
		w.object.broken = map[string]bool{}
	}
	w.object.broken[pathKey(path)] = true
}

// value exports v, which stands at path, and notes the places of everything in it.
// from is what the author wrote it as, if that is known.
func (w *walker) value(v cue.Value, path []any) (x any, ok bool, from *written) {
	if w.size++; w.size > maxObjectValues {
		if w.size == maxObjectValues+1 {
			w.fail(CodeTooLarge, path[:min(1, len(path))], fmt.Sprintf("%s has more than %d values", w.object.ID(), maxObjectValues),
				"look for a comprehension, or a struct that refers to itself in several places")
		}
		return nil, false, nil
	}
	if len(path) > maxDepth {
		w.fail(CodeTooLarge, path[:1], fmt.Sprintf("values nest deeper than %d", maxDepth), "look for a struct that is nested by a comprehension, or by hand")
		w.size = maxObjectValues + 1
		return nil, false, nil
	}
	d, _ := v.Default()
	switch d.IncompleteKind() {
	case cue.StructKind:
		return w.structure(v, d, path)
	case cue.ListKind:
		return w.list(v, d, path)
	case cue.BottomKind:
		// A struct or list with an erroneous part is itself an error, but can be walked.
		if fields, err := d.Fields(); err == nil && fields.Next() {
			if fields.Selector().LabelType() == cue.IndexLabel {
				return w.list(v, d, path)
			}
			return w.structure(v, d, path)
		}
	}
	from = w.sourceOf(v)
	w.note(path, w.placeOf(from))
	x, ok = w.leaf(v, d, path)
	return x, ok, from
}

// note keeps the place of the value at path, if there is one.
func (w *walker) note(path []any, at place) {
	if at.key.IsValid() || at.value.IsValid() {
		w.object.places[pathKey(path)] = at
	}
}

// leaf exports a value without parts.
func (w *walker) leaf(v, d cue.Value, path []any) (any, bool) {
	if d.IncompleteKind() == cue.BottomKind {
		w.breakAt(path)
		for _, f := range w.leafFindings(v, d.Err(), PathString(path)) {
			f.Object = w.object.ID()
			w.findings = append(w.findings, f)
		}
		return nil, false
	}
	if out, ok := scalar(d); ok {
		return out, true
	}
	w.breakAt(path)
	if err := d.Validate(cue.Concrete(true)); err != nil && d.IncompleteKind() != cue.BytesKind {
		what := "the value isn't concrete"
		if d.Err() != nil {
			what = oneLine(messageOf(d.Err()))
		} else if text := oneLine(fmt.Sprint(d)); len(text) <= 60 {
			what += ": " + text
		}
		w.fail(CodeIncomplete, path, what, "give it a value in this cluster's package, or make the field optional with ?")
		return nil, false
	}
	if d.IncompleteKind() == cue.IntKind {
		w.fail(CodeType, path, "the number doesn't fit 64 bits", "use a smaller number, or a string")
		return nil, false
	}
	w.fail(CodeType, path, fmt.Sprintf("%s can't be part of a Kubernetes object", d.IncompleteKind()), "use a string")
	return nil, false
}

func (w *walker) structure(v, d cue.Value, path []any) (any, bool, *written) {
	out := map[string]any{}
	fields, err := d.Fields()
	if err != nil {
		w.breakAt(path)
		if !w.tree.fromHole(errors.Promote(err, "")) {
			w.fail(CodeConflict, path, oneLine(messageOf(err)), defaultHelp(CodeConflict))
		}
		return nil, false, nil
	}
	var parts []*written
	for fields.Next() && w.size <= maxObjectValues {
		name := fields.Selector().Unquoted()
		x, ok, from := w.value(fields.Value(), child(path, name))
		if ok {
			out[name] = x
		}
		parts = append(parts, from)
	}
	return out, true, w.container(v, path, parts)
}

func (w *walker) list(v, d cue.Value, path []any) (any, bool, *written) {
	out := []any{}
	var parts []*written
	add := func(item cue.Value) {
		// A broken element stays in its place, so that the others keep theirs.
		x, _, from := w.value(item, child(path, len(out)))
		out = append(out, x)
		parts = append(parts, from)
	}
	if items, err := d.List(); err == nil {
		for items.Next() && w.size <= maxObjectValues {
			add(items.Value())
		}
	} else {
		// The elements of a list that is an error are only to be had as fields.
		items, err := d.Fields()
		if err != nil {
			w.breakAt(path)
			w.fail(CodeConflict, path, oneLine(messageOf(err)), defaultHelp(CodeConflict))
			return nil, false, nil
		}
		for items.Next() && w.size <= maxObjectValues {
			add(items.Value())
		}
	}
	return out, true, w.container(v, path, parts)
}

// container notes the place of a struct or list.
func (w *walker) container(v cue.Value, path []any, parts []*written) *written {
	if w.size > maxObjectValues {
		return nil
	}
	from := w.containerOf(v, path, parts)
	w.note(path, containerPlace(w.placeOf(from)))
	return from
}

// scalar exports a concrete value that is neither a struct nor a list.
func scalar(v cue.Value) (any, bool) {
	switch v.Kind() {
	case cue.NullKind:
		return nil, true
	case cue.BoolKind:
		b, err := v.Bool()
		return b, err == nil
	case cue.StringKind:
		s, err := v.String()
		return s, err == nil
	case cue.IntKind:
		i, err := v.Int64()
		return i, err == nil
	case cue.FloatKind, cue.NumberKind:
		f, err := v.Float64()
		return f, err == nil
	}
	return nil, false
}

// remaining reports the errors of an object that belong to none of its leaves,
// such as a field that a definition of the author's own doesn't allow.
func (w *walker) remaining(value any, err error) {
	for _, e := range errors.Errors(err) {
		path := relative(e.Path(), value)
		if len(path) == 1 && len(e.Path()) > 1 {
			// The name of a field of a definition, not of this object.
			if _, ok := lookup(value, path); !ok {
				path = nil
			}
		}
		if w.reported(path) || w.known(e) {
			continue
		}
		w.breakAt(path)
		for _, f := range w.tree.cueFindings(e, CodeConflict, "") {
			f.Object, f.Path = w.object.ID(), PathString(path)
			if f.Message == notAllowedByCUE {
				f.Message, f.Help = notAllowed(f.Path)
			}
			if strings.HasSuffix(f.Message, "is required but not present") {
				f.Code = CodeIncomplete
			}
			if at := w.object.KeyPosition(path...); at.IsValid() && !contains(f, at) {
				if f.Pos.IsValid() {
					f.Related = append([]diag.Related{{Pos: f.Pos, Message: "by this definition"}}, f.Related...)
				}
				f.Pos = at
			}
			w.findings = append(w.findings, f)
		}
	}
}

// known reports whether all places that an error names are in findings already: the
// leaf that it comes from has been reported under its own path.
func (w *walker) known(e errors.Error) bool {
	own, _ := w.tree.errorPositions(e)
	if len(own) == 0 {
		return false
	}
	return slices.ContainsFunc(w.findings, func(f diag.Finding) bool {
		return !slices.ContainsFunc(own, func(p diag.Position) bool {
			return p != f.Pos && !slices.ContainsFunc(f.Related, func(r diag.Related) bool { return r.Pos == p })
		})
	})
}

// contains reports whether the finding already names the position's line.
func contains(f diag.Finding, at diag.Position) bool {
	same := func(p diag.Position) bool { return p.File == at.File && p.Line == at.Line }
	return same(f.Pos) || slices.ContainsFunc(f.Related, func(r diag.Related) bool { return same(r.Pos) })
}

// reported reports whether a leaf at path, or below it, already has a finding.
func (w *walker) reported(path []any) bool {
	key := pathKey(path)
	for broken := range w.object.broken {
		if broken == key || strings.HasPrefix(broken, key+pathSeparator) || key == "" {
			return true
		}
	}
	return false
}

// relative turns the path of a CUE error into a path inside data. How the path
// begins depends on where CUE first evaluated the value, which may be shared; so
// the longest end of it is taken that leads anywhere in data. Only its last
// element may be missing there.
func relative(path []string, data any) []any {
	for k := range path {
		out := elements(path[k:])
		if inner, ok := lookup(data, out[:len(out)-1]); ok && holds(inner, out[len(out)-1]) {
			return out
		}
	}
	return nil
}

// holds reports whether a container could have an element of that name or index.
func holds(container, e any) bool {
	switch c := container.(type) {
	case map[string]any:
		name, ok := e.(string)
		return ok && !strings.HasPrefix(name, "#")
	case []any:
		i, ok := e.(int)
		return ok && i < len(c)
	}
	return false
}

// elements reads the elements of a CUE error's path.
func elements(path []string) []any {
	out := make([]any, len(path))
	for i, name := range path {
		out[i] = name
		if isDigits(name) {
			if n, err := strconv.Atoi(name); err == nil {
				out[i] = n
				continue
			}
		}
		if sel := cue.ParsePath(name).Selectors(); len(sel) == 1 && sel[0].LabelType() == cue.StringLabel {
			out[i] = sel[0].Unquoted()
		}
	}
	return out
}

func isDigits(s string) bool {
	return s != "" && len(s) < 9 && strings.Trim(s, "0123456789") == ""
}
