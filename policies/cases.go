package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// caseFields are the fields that a case may have.
func caseFields() []string {
	return []string{"object", "others", "facts", "cluster", "params", "want", "severities"}
}

// Test runs the cases of the rules: those of the tree if it has any of its own, or else
// those of the library. It returns how many there are, and what didn't come out as
// it should.
func (s *Ruleset) Test() (int, diag.List) {
	findings := slices.Clone(s.findings)
	n := 0
	own := slices.ContainsFunc(s.Rules(), func(r *Rule) bool { return r.Own })
	for _, r := range s.Rules() {
		if r.Own != own || r.broken {
			continue
		}
		cases, err := r.cases.Fields()
		if !r.cases.Exists() || err != nil {
			findings = append(findings, diag.Finding{
				Severity: diag.Warning, Code: CodeCase, Message: fmt.Sprintf("the rule %s has no cases", r.ID), Pos: r.Pos,
				Help: `add some, as in cases: "NAME": {object: {...}, want: ["spec.limits"]}`,
			})
			continue
		}
		for cases.Next() {
			n++
			if message := s.try(r, cases.Value()); message != "" {
				findings = append(findings, diag.Finding{
					Code: CodeCase, Message: fmt.Sprintf("%s: %s: %s", r.ID, cases.Selector().Unquoted(), message),
					Pos:  r.places[cases.Selector().Unquoted()],
					Path: cases.Value().Path().String(), Help: "correct the rule, or what the case wants",
				})
			}
		}
	}
	return n, findings.Sorted()
}

// try runs one case and says what is wrong, or nothing.
func (s *Ruleset) try(r *Rule, v cue.Value) string {
	var c map[string]any
	if err := v.Decode(&c); err != nil {
		return firstLine(err)
	}
	c, _ = whole(c).(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if !slices.Contains(caseFields(), name) {
			return fmt.Sprintf("a case has no field %s; there are %s", name, strings.Join(caseFields(), ", "))
		}
	}
	for _, input := range []string{"facts", "cluster"} {
		given, _ := c[input].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if known := inputNames(input); !slices.Contains(known, name) {
				return fmt.Sprintf("%s has no field %s; there are %s", input, name, strings.Join(known, ", "))
			}
		}
	}
	if _, ok := c["want"]; !ok {
		return `the case doesn't say what it wants, as in want: ["spec.limits"], or want: [] for nothing`
	}
	object, _ := c["object"].(map[string]any)
	subject := newObject(r.Kind, object)
	in := input{object: object, cluster: map[string]any{"name": "", "production": false}, facts: c["facts"]}
	if given, ok := c["cluster"].(map[string]any); ok {
		all := map[string]any{"name": "", "production": false}
		maps.Copy(all, given)
		in.cluster = all
	}
	if in.facts == nil {
		in.facts = map[string]any{}
		if r.Kind == "NodePool" {
			b := render.Bundle{Objects: []render.Object{subject}}
			for _, other := range list(c["others"]) {
				value, _ := other.(map[string]any)
				kind, _ := value["kind"].(string)
				b.Objects = append(b.Objects, newObject(kind, value))
			}
			in.facts = newSurveyor(b, s.options.At).about(subject).value()
		}
	}
	rule := *r
	rule.known = map[string]answer{}
	if p, ok := c["params"]; ok {
		rule.value = rule.value.FillPath(cue.ParsePath("params"), p)
	}
	a := rule.judge(in)
	if a.err != nil {
		return firstLine(a.err)
	}
	var got, levels []string
	for _, h := range a.hits {
		got = append(got, render.PathString(h.path))
		level := h.severity
		if level == "" {
			level = r.Severity
		}
		levels = append(levels, level)
	}
	if want := texts(c["want"]); !slices.Equal(got, want) {
		return fmt.Sprintf("finds %s, wants %s", said(got), said(want))
	}
	if want, ok := c["severities"]; ok && !slices.Equal(levels, texts(want)) {
		return fmt.Sprintf("finds the severities %s, wants %s", said(levels), said(texts(want)))
	}
	return ""
}

func newObject(kind string, value map[string]any) render.Object {
	meta, _ := value["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return render.Object{GVK: schema.GroupVersionKind{Kind: kind}, Name: name, Value: value}
}

func texts(v any) []string {
	var out []string
	for _, x := range list(v) {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

func said(l []string) string {
	if len(l) == 0 {
		return "nothing"
	}
	return strings.Join(l, ", ")
}
