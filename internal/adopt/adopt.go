// Package adopt edits an author's CUE so that it says what is live.
//
// An edit replaces or removes the very text that states a value and leaves every
// other byte as it is, comments and formatting included. Whether it does what it
// should is not concluded from the syntax alone: the edited tree is evaluated again,
// and an edit that doesn't bring the live value, or changes anything else in any
// cluster, is refused and taken back.
package adopt

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
)

// CodeRefused is the code of findings about values that can't be adopted.
const CodeRefused = "ADOPT001"

// Change is a field of an object that Git shall hold as it is live.
type Change struct {
	Cluster string
	Object  render.Object
	plan.FieldChange
}

func (c Change) name() string { return c.Object.ID() + " " + plan.PathString(c.Path) }

// Outcome is what can be adopted.
type Outcome struct {
	// Files are the edited files, by name, as they become.
	Files map[string][]byte
	// Done are the changes that the files hold.
	Done []Change
	// Refused says of every other change why it can't be made, at the author's line.
	Refused diag.List
}

// Evaluate evaluates one cluster of a tree.
type Evaluate func(ctx context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error)

// Adopt works out the edits that make the tree hold changes. clusters are all of
// the tree's: what the edits do to each of them is checked. Its error says that the
// tree couldn't be evaluated.
func Adopt(ctx context.Context, tree fs.FS, clusters []string, changes []Change, evaluate Evaluate) (Outcome, error) {
	a := &adopter{tree: tree, clusters: clusters, evaluate: evaluate, texts: map[string][]byte{}}
	before, findings, err := a.render(ctx, nil)
	if err != nil {
		return Outcome{}, err
	}
	if findings.HasErrors() {
		return Outcome{Refused: findings}, nil
	}
	var todo []located
	out := Outcome{}
	for _, c := range changes {
		e, why := a.locate(c)
		if why != "" {
			out.Refused = append(out.Refused, refusal(c, why))
			continue
		}
		todo = append(todo, located{c, e})
	}
	todo, clashes := apart(todo)
	out.Refused = append(out.Refused, clashes...)
	// All together first, which is nearly always right; one by one to find the culprit.
	if why, err := a.try(ctx, before, todo); err != nil {
		return Outcome{}, err
	} else if why != "" {
		var good []located
		for _, one := range todo {
			why, err := a.try(ctx, before, append(slices.Clone(good), one))
			if err != nil {
				return Outcome{}, err
			}
			if why != "" {
				out.Refused = append(out.Refused, refusal(one.Change, why))
				continue
			}
			good = append(good, one)
		}
		todo = good
	}
	out.Files = a.edited(todo)
	for _, l := range todo {
		out.Done = append(out.Done, l.Change)
	}
	out.Refused = out.Refused.Sorted()
	return out, nil
}

func refusal(c Change, why string) diag.Finding {
	return diag.Finding{
		Severity: diag.Error, Code: CodeRefused, Pos: c.Object.Position(c.Path...), Object: c.Object.ID(), Path: plan.PathString(c.Path),
		Message: "can't be adopted: " + why, Help: "change it by hand",
	}
}

// located is a change with the edit that makes it.
type located struct {
	Change
	edit edit
}

// edit replaces the bytes [from, to) of a file.
type edit struct {
	file     string
	from, to int
	text     string
}

// apart leaves out edits of text that another one edits already.
func apart(all []located) ([]located, diag.List) {
	var out []located
	var clashes diag.List
	for _, l := range all {
		clash := slices.IndexFunc(out, func(o located) bool {
			return o.edit.file == l.edit.file && l.edit.from < o.edit.to && o.edit.from < l.edit.to
		})
		switch {
		case clash < 0:
			out = append(out, l)
		case out[clash].edit == l.edit:
			// The same text, and both want the same of it.
			out = append(out, located{l.Change, edit{file: l.edit.file, from: l.edit.from, to: l.edit.from}})
		default:
			clashes = append(clashes, refusal(l.Change, "it shares its text with "+out[clash].name()+", which is live with another value"))
		}
	}
	return out, clashes
}

type adopter struct {
	tree     fs.FS
	clusters []string
	evaluate Evaluate
	texts    map[string][]byte
}

// edited returns the files as edits make them.
func (a *adopter) edited(todo []located) map[string][]byte {
	byFile := map[string][]edit{}
	for _, l := range todo {
		byFile[l.edit.file] = append(byFile[l.edit.file], l.edit)
	}
	out := map[string][]byte{}
	for file, edits := range byFile {
		// From the end, so that what comes before keeps its place.
		slices.SortFunc(edits, func(x, y edit) int { return y.from - x.from })
		text := a.texts[file]
		for _, e := range edits {
			text = slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
		}
		out[file] = text
	}
	return out
}

// render evaluates every cluster of the tree with some files replaced.
func (a *adopter) render(ctx context.Context, files map[string][]byte) (map[string]render.Bundle, diag.List, error) {
	tree := fs.FS(overlay{a.tree, files})
	if len(files) == 0 {
		tree = a.tree
	}
	out := map[string]render.Bundle{}
	var all diag.List
	for _, cluster := range a.clusters {
		bundle, findings, err := a.evaluate(ctx, tree, cluster)
		if err != nil {
			return nil, nil, fmt.Errorf("evaluate cluster %s: %w", cluster, err)
		}
		out[cluster] = bundle
		all = append(all, findings...)
	}
	return out, all, nil
}

// try evaluates the tree with the edits made and says why they won't do, "" if they
// do exactly what they should.
func (a *adopter) try(ctx context.Context, before map[string]render.Bundle, todo []located) (string, error) {
	if len(todo) == 0 {
		return "", nil
	}
	after, findings, err := a.render(ctx, a.edited(todo))
	if err != nil {
		return "", err
	}
	for _, f := range findings.Sorted() {
		if f.Severity == diag.Error {
			return fmt.Sprintf("the tree would be invalid: %s: %s", f.Pos, f.Message), nil
		}
	}
	for _, cluster := range a.clusters {
		for _, was := range before[cluster].Objects {
			is, ok := after[cluster].Find(was.GVK.Kind, was.Name)
			if !ok {
				return fmt.Sprintf("%s of cluster %s would be gone", was.ID(), cluster), nil
			}
			if why := compare(cluster, was, is, todo); why != "" {
				return why, nil
			}
		}
		if len(after[cluster].Objects) != len(before[cluster].Objects) {
			return "it would make other objects in cluster " + cluster, nil
		}
	}
	return "", nil
}

// compare wants one object to hold what is to be adopted and to be as it was
// otherwise.
func compare(cluster string, was, is render.Object, todo []located) string {
	wanted := was.Value
	for _, l := range todo {
		if l.Cluster != cluster || l.Object.ID() != was.ID() {
			continue
		}
		got, there := plan.ValueAt(is.Value, l.Path)
		if l.Live == nil && there {
			return "another place declares it too"
		}
		if l.Live != nil && (!there || !plan.Same(l.Path, got, l.Live)) {
			return "another place decides its value"
		}
		// The spelling may differ from the live one; the rest has to be equal.
		wanted = withValue(wanted, l.Path, got, there)
	}
	if path := differs(nil, wanted, is.Value); path != nil {
		return fmt.Sprintf("the text is shared: %s %s of cluster %s would change too", was.ID(), plan.PathString(path), orOnly(cluster))
	}
	return ""
}

func orOnly(cluster string) string {
	if cluster == "" {
		return "this tree"
	}
	return cluster
}

// differs returns the first path at which two JSON trees differ, nil if none. A
// struct that is empty is as good as one that isn't there.
func differs(path []any, a, b any) []any {
	am, aMap := a.(map[string]any)
	bm, bMap := b.(map[string]any)
	if aMap && b == nil || bMap && a == nil || aMap && bMap {
		var keys []string
		for k := range am {
			keys = append(keys, k)
		}
		for k := range bm {
			if _, ok := am[k]; !ok {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			if d := differs(append(path[:len(path):len(path)], k), am[k], bm[k]); d != nil {
				return d
			}
		}
		return nil
	}
	al, aList := a.([]any)
	bl, bList := b.([]any)
	if aList && bList && len(al) == len(bl) {
		for i := range al {
			if d := differs(append(path[:len(path):len(path)], i), al[i], bl[i]); d != nil {
				return d
			}
		}
		return nil
	}
	if fmt.Sprintf("%T %v", a, a) != fmt.Sprintf("%T %v", b, b) {
		return append([]any{}, path...)
	}
	return nil
}

// withValue returns v with the value at a path set, or removed. v isn't changed.
func withValue(v any, path []any, value any, there bool) map[string]any {
	out, _ := set(v, path, value, there).(map[string]any)
	return out
}

func set(v any, path []any, value any, there bool) any {
	if len(path) == 0 {
		return value
	}
	switch e := path[0].(type) {
	case string:
		m, _ := v.(map[string]any)
		out := make(map[string]any, len(m))
		for k, x := range m {
			out[k] = x
		}
		if len(path) == 1 && !there {
			delete(out, e)
			return out
		}
		out[e] = set(m[e], path[1:], value, there)
		return out
	case int:
		l, _ := v.([]any)
		out := slices.Clone(l)
		if e < len(out) {
			out[e] = set(out[e], path[1:], value, there)
		}
		return out
	}
	return v
}

// lineStart is where the line of an offset begins.
func lineStart(text []byte, at int) int { return bytes.LastIndexByte(text[:at], '\n') + 1 }

// indent is the white space at the beginning of an offset's line.
func indent(text []byte, at int) string {
	line := string(text[lineStart(text, at):at])
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}
