package render

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/errors"

	"github.com/coppice-dev/coppice/internal/diag"
)

// evaluator turns the value of a cluster's package into objects.
type evaluator struct {
	tree *tree
	// dir is the folder of the cluster's package. Where several files set one
	// field, the position in this folder is reported.
	dir string
	// index finds what the author wrote by the syntax that CUE names as its source.
	index map[ast.Node]*written
}

// newEvaluator prepares to evaluate the package that inst was built from. index
// holds what was indexed before, of which the package may use some.
func newEvaluator(t *tree, dir string, inst *build.Instance, index map[ast.Node]*written) *evaluator {
	e := &evaluator{tree: t, dir: dir, index: index}
	for _, i := range append([]*build.Instance{inst}, inst.Dependencies()...) {
		for _, f := range i.Files {
			if _, done := index[f]; !done && !foreign(f.Filename) {
				index[f] = nil
				e.indexFile(f)
			}
		}
	}
	return e
}

// objects exports every object that package v declares, to add, and returns what is
// wrong with them. Objects with faults are exported as far as they could be evaluated.
func (e *evaluator) objects(v cue.Value, add func(Object)) diag.List {
	findings := e.otherFields(v)
	for _, k := range declarable() {
		group := v.LookupPath(cue.ParsePath(k.field))
		if !group.Exists() {
			continue
		}
		fields, err := group.Fields()
		if err != nil {
			f := e.leafFindings(group, err, k.field)
			if len(f) == 0 {
				continue
			}
			if kind := group.IncompleteKind(); kind != cue.BottomKind && kind != cue.StructKind {
				f[0].Code, f[0].Message = CodeType, fmt.Sprintf("%s must map names to objects, but is %s", k.field, kindName(kind))
				f[0].Help = fmt.Sprintf("write %s: NAME: {...}", k.field)
			}
			findings = append(findings, f...)
			continue
		}
		for fields.Next() {
			w := &walker{evaluator: e, object: Object{
				GVK:    k.gvk,
				Name:   fields.Selector().Unquoted(),
				places: map[string]place{},
			}}
			w.run(fields.Value())
			add(w.object)
			findings = append(findings, w.findings...)
		}
	}
	// What is wrong with a definition is told of the objects that are built on it.
	return slices.DeleteFunc(findings, func(f diag.Finding) bool {
		return f.Object == "" && slices.ContainsFunc(findings, func(g diag.Finding) bool {
			return g.Object != "" && g.Code == f.Code && g.Pos == f.Pos
		})
	})
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
			for _, f := range placed(e.tree.cueFindings(err, CodeConflict, ""), e.placeOf(e.sourceOf(fields.Value())).key) {
				if f.Message == notAllowedByCUE {
					f.Message, f.Help = notAllowed(f.Path)
				}
				findings = append(findings, f)
			}
		}
		if !regular {
			continue
		}
		if s := nearest(sel.Unquoted(), known); s != "" {
			findings = append(findings, diag.Finding{
				Code:    CodeMisnamedField,
				Message: fmt.Sprintf("nothing reads the field %s", sel.Unquoted()),
				Pos:     e.placeOf(e.sourceOf(fields.Value())).key,
				Path:    sel.Unquoted(),
				Help:    fmt.Sprintf("did you mean %s? If not, make it a hidden field: _%s", s, sel.Unquoted()),
			})
		}
	}
	return findings
}

// placed gives findings that stand nowhere a place. One that says what another says
// at a place of its own is left out.
func placed(l diag.List, at diag.Position) diag.List {
	var out diag.List
	for i, f := range l {
		if !f.Pos.IsValid() {
			if slices.ContainsFunc(l[i+1:], func(g diag.Finding) bool { return g.Message == f.Message }) ||
				slices.ContainsFunc(out, func(g diag.Finding) bool { return g.Message == f.Message }) {
				continue
			}
			f.Pos = at
		}
		out = append(out, f)
	}
	return out
}

// leafFindings reports the error of a value that has no parts. All its errors
// concern the one value, so that they make one finding.
func (e *evaluator) leafFindings(v cue.Value, err error, path string) diag.List {
	if err == nil {
		return nil
	}
	all := e.tree.cueFindings(err, CodeConflict, "")
	if len(all) == 0 {
		return nil
	}
	f := all[0]
	f.Path = path
	at := e.placeOf(e.sourceOf(v))
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
			if x := e.index[p.Source()]; x != nil {
				own[e.placeOf(x).value] = true
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
	conflict := strings.Contains(f.Message, "conflicting") || strings.Contains(f.Message, "out of bound")
	for _, p := range places {
		if p != f.Pos {
			f.Related = append(f.Related, diag.Related{Pos: p, Message: map[bool]string{true: "conflicts with this", false: "also involved"}[conflict]})
		}
	}
	switch {
	case conflict:
		f.Help = "keep one of the values, or make them agree"
	case f.Message == notAllowedByCUE:
		f.Related = nil
		f.Message, f.Help = notAllowed(path)
	case !strings.HasPrefix(f.Help, suggests):
		f.Help = "correct the expression"
	}
	return diag.List{f}
}

// notAllowedByCUE is CUE's word for a field that a closed struct doesn't have.
const notAllowedByCUE = "field not allowed"

// notAllowed words the finding about a field that a definition of the author's
// own excludes: the schemas are open while the author's tree is evaluated.
func notAllowed(path string) (message, help string) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	return "a definition that this is built on has no field " + name,
		"add the field to the definition, build the definition on the schema's own (as in #Base: karpenter.#NodePool & {...}), or open it with ..."
}
