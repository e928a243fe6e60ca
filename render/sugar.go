package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas/coppice"
	"github.com/coppice-dev/coppice/schemas/sugar"
)

// joinPauses makes one finding of the conflicts between a pool's own pause and one for all
// pools: each field of theirs may differ, and that isn't what the author has to correct.
func (w *walker) joinPauses() {
	at := []any{sugar.Field, "pause"}
	first, out := -1, w.findings[:0:0]
	for _, f := range w.findings {
		if f.Code == CodeConflict && strings.HasPrefix(f.Path, PathString(at)+".") && strings.Contains(f.Message, "conflicting values") {
			if first >= 0 {
				continue
			}
			first = len(out)
		}
		out = append(out, f)
	}
	if first < 0 {
		return
	}
	f := &out[first]
	f.Message, f.Path = w.object.ID()+" has two pauses that differ", PathString(at)
	f.Help = "keep one of them; to let a pool's own win over one for all pools, write the latter as nodePools: [_]: coppice: pause: *{...} | {...}"
	for i := range f.Related {
		f.Related[i].Message = "the other one"
	}
	f.Related = f.Related[:min(1, len(f.Related))]
	w.findings = out
}

// desugar replaces what an author may write about a NodePool beyond the API by the
// annotations that it stands for. What is known to be faulty is left out.
func desugar(o Object, faulty [][]any) (Object, diag.List) {
	faulty = slices.Clone(faulty)
	for _, key := range sortedKeys(o.broken) {
		// What couldn't be evaluated is missing from the value, and has its finding.
		faulty = append(faulty, elements(strings.FieldsFunc(key, func(r rune) bool { return string(r) == pathSeparator })))
	}
	findings := annotated(o, faulty)
	if _, ok := o.Value[sugar.Field]; !ok || o.GVK.Kind != kindNodePool {
		return o, findings
	}
	value, origins, faults := sugar.Compile(withoutPaths(o.Value, faulty))
	for _, f := range faults {
		path := PathString(f.Path)
		// What misses a part that was left out has been reported as faulty.
		if slices.ContainsFunc(faulty, func(p []any) bool {
			return contained(f.Path, p) || contained(p, f.Path) || siblings(f.Path, p) && mentions(f.Message, last(p))
		}) {
			continue
		}
		findings = append(findings, diag.Finding{
			Code: CodeSugar, Message: f.Message, Help: "correct it; what it means is in docs/authoring.md",
			Pos: o.Position(f.Path...), Object: o.ID(), Path: path,
		})
	}
	// The author wrote the options, not the annotations.
	places := maps.Clone(o.places)
	for _, origin := range origins {
		at := o.places[pathKey(origin.From)]
		if !at.key.IsValid() && !at.value.IsValid() {
			at.value = o.Position(origin.From...)
		}
		places[pathKey(origin.Path)] = at
	}
	o.Value, o.places = value, places
	return o, findings
}

// annotated checks the options that the author wrote as annotations, but for what is
// known to be faulty.
func annotated(o Object, faulty [][]any) diag.List {
	if o.GVK.Kind != kindNodePool {
		return nil
	}
	meta, _ := o.Value["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	var findings diag.List
	report := func(severity diag.Severity, at diag.Position, path []any, message, help string) {
		if !slices.ContainsFunc(faulty, func(p []any) bool { return contained(path, p) }) {
			findings = append(findings, diag.Finding{
				Severity: severity, Code: CodeSugar, Message: message, Help: help, Pos: at, Object: o.ID(), Path: PathString(path),
			})
		}
	}
	for _, f := range sugar.CheckAnnotations(o.Value) {
		report(diag.Error, o.Position(f.Path...), f.Path, f.Message, "correct it; what it means is in docs/authoring.md")
	}
	known := sugar.Annotations()
	// Other parts of Coppice read or write these.
	for _, name := range []string{"accept-rewrite", "prune", "revision", "source", "template"} {
		known = append(known, coppice.Group+"/"+name)
	}
	for _, name := range sortedKeys(annotations) {
		if !strings.HasPrefix(name, coppice.Group+"/") || slices.Contains(known, name) {
			continue
		}
		if s := nearest(name, known); s != "" {
			path := []any{"metadata", "annotations", name}
			report(diag.Warning, o.KeyPosition(path...), path, fmt.Sprintf("nothing reads the annotation %s", name), fmt.Sprintf("did you mean %s?", s))
		}
	}
	return findings
}

// contained reports whether path leads to what at leads to, or to a part of it.
func contained(path, at []any) bool {
	return len(path) >= len(at) && slices.Equal(path[:len(at)], at)
}

// siblings reports whether both paths lead to fields of one struct.
func siblings(a, b []any) bool {
	return len(a) == len(b) && len(a) > 0 && slices.Equal(a[:len(a)-1], b[:len(b)-1])
}

// withoutPaths copies the options of an object without the given paths. Elements of
// lists stay, so that the others keep their places.
func withoutPaths(obj map[string]any, paths [][]any) map[string]any {
	var visit func(v any, path []any) any
	visit = func(v any, path []any) any {
		switch v := v.(type) {
		case map[string]any:
			out := make(map[string]any, len(v))
			for name, x := range v {
				p := child(path, name)
				if !slices.ContainsFunc(paths, func(q []any) bool { return slices.Equal(p, q) }) {
					out[name] = visit(x, p)
				}
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, x := range v {
				out[i] = visit(x, child(path, i))
			}
			return out
		}
		return v
	}
	out := maps.Clone(obj)
	out[sugar.Field] = visit(obj[sugar.Field], []any{sugar.Field})
	return out
}
