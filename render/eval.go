package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"

	"github.com/coppice-dev/coppice/internal/diag"
)

// evaluator turns the value of a cluster's package into objects.
type evaluator struct {
	tree *tree
	// dir is the folder of the cluster's package. Where several files set one
	// field, the position in this folder is reported.
	dir string
}

// objects exports every object that package v declares. Objects with faults
// are exported as far as they could be evaluated.
func (e *evaluator) objects(v cue.Value) ([]Object, diag.List) {
	var objects []Object
	findings := e.otherFields(v)
	for _, k := range declarable() {
		group := v.LookupPath(cue.ParsePath(k.field))
		if !group.Exists() {
			continue
		}
		fields, err := group.Fields()
		if err != nil {
			findings = append(findings, e.leafFindings(group, err, k.field)...)
			continue
		}
		for fields.Next() {
			w := &walker{evaluator: e, object: Object{
				GVK:    k.gvk,
				Name:   fields.Selector().Unquoted(),
				places: map[string]place{},
			}}
			w.run(fields.Value())
			objects = append(objects, w.object)
			findings = append(findings, w.findings...)
		}
	}
	return objects, findings
}

// otherFields reports the errors of what the package holds besides objects, and
// fields whose names are nearly, but not quite, those that are read: a misspelt
// nodePools would otherwise declare nothing at all.
func (e *evaluator) otherFields(v cue.Value) diag.List {
	var known []string
	for _, k := range declarable() {
		known = append(known, k.field)
	}
	var findings diag.List
	fields, err := v.Fields(cue.All())
	if err != nil {
		return e.tree.loadFindings(errors.Promote(err, ""))
	}
	for fields.Next() {
		sel := fields.Selector()
		if sel.ConstraintType() != 0 {
			continue
		}
		regular := sel.LabelType() == cue.StringLabel
		if regular && slices.Contains(known, sel.Unquoted()) {
			continue
		}
		if err := fields.Value().Validate(); err != nil {
			findings = append(findings, e.tree.cueFindings(err, CodeConflict, "")...)
		}
		if !regular {
			continue
		}
		if s := nearest(sel.Unquoted(), known); s != "" {
			findings = append(findings, diag.Finding{
				Code:    CodeMisnamedField,
				Message: fmt.Sprintf("nothing reads the field %s", sel.Unquoted()),
				Pos:     e.placeOf(fields.Value()).key,
				Path:    sel.Unquoted(),
				Help:    fmt.Sprintf("did you mean %s? If not, make it a hidden field: _%s", s, sel.Unquoted()),
			})
		}
	}
	return findings
}

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
	w.object.places[""] = w.placeOf(v)
	value, ok := w.value(v, nil)
	if w.size > maxObjectValues {
		// Nothing else about it is worth knowing, or affordable.
		w.object.Value, w.object.broken = map[string]any{}, map[string]bool{"": true}
		return
	}
	if err := v.Validate(cue.Concrete(true)); err != nil {
		w.remaining(v, err)
	}
	w.object.Value, _ = value.(map[string]any)
	if w.object.Value == nil {
		w.object.Value = map[string]any{}
		if ok {
			w.fail(CodeType, nil, fmt.Sprintf("%s is declared as a %s", w.object.ID(), v.IncompleteKind()),
				"declare it as an object with the fields of a "+w.object.GVK.Kind)
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
func (w *walker) value(v cue.Value, path []any) (any, bool) {
	if w.size++; w.size > maxObjectValues {
		if w.size == maxObjectValues+1 {
			w.fail(CodeTooLarge, path[:min(1, len(path))], fmt.Sprintf("%s has more than %d values", w.object.ID(), maxObjectValues),
				"look for a comprehension, or a struct that refers to itself in several places")
		}
		return nil, false
	}
	d, _ := v.Default()
	switch d.IncompleteKind() {
	case cue.StructKind:
		return w.structure(d, path)
	case cue.ListKind:
		return w.list(d, path)
	case cue.BottomKind:
		// A struct with an erroneous field is itself an error, but can be walked.
		if fields, err := d.Fields(); err == nil && fields.Next() {
			return w.structure(d, path)
		}
		if items, err := d.List(); err == nil && items.Next() {
			return w.list(d, path)
		}
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
	w.fail(CodeType, path, fmt.Sprintf("a %s can't be part of a Kubernetes object", d.IncompleteKind()), "use a string or a number that fits 64 bits")
	return nil, false
}

func (w *walker) structure(v cue.Value, path []any) (any, bool) {
	out := map[string]any{}
	fields, err := v.Fields()
	if err != nil {
		w.breakAt(path)
		w.fail(CodeConflict, path, oneLine(messageOf(err)), "")
		return nil, false
	}
	for fields.Next() && w.size <= maxObjectValues {
		name := fields.Selector().Unquoted()
		p := child(path, name)
		at := w.placeOf(fields.Value())
		if k := fields.Value().IncompleteKind(); k == cue.StructKind || k == cue.ListKind {
			// A brace or a reference says less than the name before it.
			at.value = at.key
		}
		if at.key.IsValid() || at.value.IsValid() {
			w.object.places[pathKey(p)] = at
		}
		if x, ok := w.value(fields.Value(), p); ok {
			out[name] = x
		}
	}
	return out, true
}

func (w *walker) list(v cue.Value, path []any) (any, bool) {
	out := []any{}
	items, err := v.List()
	if err != nil {
		w.breakAt(path)
		w.fail(CodeConflict, path, oneLine(messageOf(err)), "")
		return nil, false
	}
	for i := 0; items.Next() && w.size <= maxObjectValues; i++ {
		p := child(path, i)
		if at := w.placeOf(items.Value()); at.value.IsValid() {
			w.object.places[pathKey(p)] = at
		}
		// A broken element stays in its place, so that the others keep theirs.
		x, _ := w.value(items.Value(), p)
		out = append(out, x)
	}
	return out, true
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
func (w *walker) remaining(v cue.Value, err error) {
	prefix := len(v.Path().Selectors())
	for _, e := range errors.Errors(err) {
		path := elements(e.Path(), prefix)
		if w.reported(path) {
			continue
		}
		w.breakAt(path)
		for _, f := range w.tree.cueFindings(e, CodeConflict, "") {
			f.Object, f.Path = w.object.ID(), PathString(path)
			if f.Message == "field not allowed" {
				f.Message, f.Help = notAllowed(f.Path)
			}
			if strings.HasSuffix(f.Message, "is required but not present") {
				f.Code = CodeIncomplete
			}
			if at := w.object.KeyPosition(path...); at.IsValid() && !contains(f, at) {
				f.Related = append([]diag.Related{{Pos: f.Pos, Message: "by this definition"}}, f.Related...)
				f.Pos = at
			}
			w.findings = append(w.findings, f)
		}
	}
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
		if broken == key || strings.HasPrefix(broken, key+"\x1f") || key == "" {
			return true
		}
	}
	return false
}

// elements turns the path of a CUE error, whose first skip elements lead to the
// value that was judged, into a path inside that value.
func elements(path []string, skip int) []any {
	if len(path) < skip {
		return nil
	}
	var out []any
	for _, name := range path[skip:] {
		if isDigits(name) {
			i, err := strconv.Atoi(name)
			if err == nil {
				out = append(out, i)
				continue
			}
		}
		if sel := cue.ParsePath(name).Selectors(); len(sel) == 1 && sel[0].LabelType() == cue.StringLabel {
			name = sel[0].Unquoted()
		}
		out = append(out, name)
	}
	return out
}

func isDigits(s string) bool {
	return s != "" && len(s) < 9 && strings.Trim(s, "0123456789") == ""
}

// leafFindings reports the error of a value that has no parts. All its errors
// concern the one value, so that they make one finding.
func (e *evaluator) leafFindings(v cue.Value, err error, path string) diag.List {
	if err == nil {
		return nil
	}
	all := e.tree.cueFindings(err, CodeConflict, "")
	f := all[0]
	f.Path = path
	at := e.placeOf(v)
	places := []diag.Position{}
	for _, g := range all {
		for _, r := range append([]diag.Related{{Pos: g.Pos}}, g.Related...) {
			if r.Pos.IsValid() && !slices.Contains(places, r.Pos) {
				places = append(places, r.Pos)
			}
		}
	}
	// Where the conflicting values themselves are known, the definitions and
	// patterns that they came through only distract.
	if _, parts := v.Expr(); len(parts) > 1 {
		values := slices.Clone(places)
		own := map[diag.Position]bool{}
		for _, p := range parts {
			if src, ok := p.Source().(*ast.Field); ok {
				own[e.fieldPlace(src).value] = true
			}
		}
		values = slices.DeleteFunc(values, func(p diag.Position) bool { return !own[p] })
		if len(values) > 1 {
			places = values
		}
	}
	f.Related = nil
	if len(places) == 0 {
		f.Pos = at.value
		return diag.List{f}
	}
	f.Pos = places[0]
	if slices.Contains(places, at.value) {
		f.Pos = at.value
	}
	for _, p := range places {
		if p != f.Pos {
			f.Related = append(f.Related, diag.Related{Pos: p, Message: "conflicts with this"})
		}
	}
	switch {
	case strings.Contains(f.Message, "conflicting"), strings.Contains(f.Message, "out of bound"):
		f.Help = "keep one of the values, or make them agree"
	case f.Message == "field not allowed":
		f.Related = nil
		f.Message, f.Help = notAllowed(path)
	default:
		f.Help = "correct the expression"
	}
	return diag.List{f}
}

// notAllowed words the finding about a field that a definition of the author's
// own excludes: the schemas are open while the author's tree is evaluated.
func notAllowed(path string) (message, help string) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	return "a definition that this is built on has no field " + name,
		"add the field to the definition, build the definition on the schema's own (as in #Base: karpenter.#NodePool & {...}), or open it with ..."
}

// placeOf finds where the author wrote v. A value that several places set gets
// the best of them: one that states a concrete value rather than a constraint,
// names the field rather than matching it by a pattern, and stands in the
// cluster's own package; then the first.
func (e *evaluator) placeOf(v cue.Value) place {
	if field, ok := v.Source().(*ast.Field); ok {
		return e.fieldPlace(field)
	}
	op, parts := v.Expr()
	if op != cue.AndOp {
		if src := v.Source(); src != nil && !foreign(src.Pos().Filename()) {
			return place{value: e.tree.position(src.Pos())}
		}
		return place{}
	}
	var best place
	bestRank := -1
	for _, part := range parts {
		var at place
		rank := 0
		switch src := part.Source().(type) {
		case nil:
			continue
		case *ast.Field:
			at = e.fieldPlace(src)
			if _, pattern := src.Label.(*ast.ListLit); !pattern {
				rank += 2
			}
		default:
			if foreign(src.Pos().Filename()) {
				continue
			}
			at = place{value: e.tree.position(src.Pos())}
		}
		if !at.value.IsValid() {
			continue
		}
		if part.IsConcrete() || part.Kind() == cue.BottomKind && part.IncompleteKind() == cue.BottomKind {
			rank += 4
		}
		if strings.HasPrefix(at.value.File, e.dir+"/") || e.dir == "." && !strings.Contains(at.value.File, "/") {
			rank++
		}
		if rank > bestRank || rank == bestRank && at.value.Compare(best.value) < 0 {
			best, bestRank = at, rank
		}
	}
	return best
}

// fieldPlace is the place of a field in the author's files, or none for a
// field of a module.
func (e *evaluator) fieldPlace(f *ast.Field) place {
	if foreign(f.Pos().Filename()) {
		return place{}
	}
	return place{key: e.tree.position(f.Label.Pos()), value: e.tree.position(f.Value.Pos())}
}
