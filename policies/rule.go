package policies

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// The codes of findings about rules and settings. A finding of a rule has the rule's
// name for its code.
const (
	// CodeSettings marks settings, or a rule, that can't be read.
	CodeSettings = "POL001"
	// CodeEvaluation marks a rule that fails on an object.
	CodeEvaluation = "POL002"
	// CodeWaiver marks a waiver that has expired, is about to, or waives nothing.
	CodeWaiver = "POL003"
	// CodeCase marks a case of a rule that doesn't come out as it says.
	CodeCase = "POL004"
)

// Codes says what each code of this package means. Those of rules are described by
// [Checker.Describe].
func Codes() map[string]string {
	return map[string]string{
		CodeSettings:   "settings, or a rule, can't be read",
		CodeEvaluation: "a rule fails on an object",
		CodeWaiver:     "a waiver has expired, soon will, or waives nothing",
		CodeCase:       "a case doesn't come out as it says",
	}
}

// rulesDir is the folder of a tree that holds its own rules.
const rulesDir = "policies"

// all is the group that every rule of the library is in.
const all = "all"

//go:embed library
var library embed.FS

// Rule is one rule.
type Rule struct {
	ID string `json:"id"`
	// Severity is deny, warn or info.
	Severity string `json:"severity"`
	// Kind is the kind of object that it judges.
	Kind   string   `json:"kind"`
	Groups []string `json:"groups,omitempty"`
	// Title says what holds where the rule is kept.
	Title string `json:"title"`
	Why   string `json:"why"`
	Help  string `json:"help"`
	// Params are CUE text: what can be set, with defaults.
	Params string `json:"params,omitempty"`
	// Good and Bad are CUE text, parts of an object that keeps the rule and one that doesn't.
	Good string `json:"good,omitempty"`
	Bad  string `json:"bad,omitempty"`
	// Own says that the rule is the tree's.
	Own bool          `json:"own,omitempty"`
	Pos diag.Position `json:"pos,omitzero"`

	// value is the rule as objects are judged by it, cases are those that it comes with, at
	// their places.
	value  cue.Value
	cases  cue.Value
	places map[string]diag.Position
	reads  map[string]*reads
	known  map[string]answer
	broken bool
}

// reads is what a rule declares of an input: all of a value, or some of its fields.
type reads struct{ fields map[string]*reads }

// inputs are the fields of a rule that it is given.
func inputs() []string { return []string{"object", "facts", "cluster"} }

// inputNames are the fields of an input; nil if any may be there.
func inputNames(input string) []string {
	switch input {
	case "facts":
		return factNames()
	case "cluster":
		return []string{"name", "production"}
	}
	return nil
}

// ruleFields are the fields that a rule may have.
func ruleFields() []string {
	return append(inputs(), "severity", "kind", "groups", "title", "why", "help", "params", "found", "example", "cases")
}

// kinds maps the kinds that rules can be about.
func kinds() []string {
	return []string{"NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer"}
}

func severityOf(name string) (diag.Severity, bool) {
	i := slices.Index([]string{"deny", "warn", "info"}, name)
	return diag.Severity(max(i, 0)), i >= 0
}

// reader reads a package's values, and notes what is wrong with them.
type reader struct {
	pkg      *render.Package
	findings diag.List
}

func (r *reader) fail(v cue.Value, message, help string) {
	r.findings = append(r.findings, diag.Finding{
		Code: CodeSettings, Message: message, Pos: r.pkg.Position(v), Path: v.Path().String(), Help: help,
	})
}

// wrong notes a CUE error.
func (r *reader) wrong(err error) {
	r.findings = append(r.findings, r.pkg.Findings(err, CodeSettings)...)
}

// fields walks a struct whose fields are known by name; nil as known allows any.
func (r *reader) fields(v cue.Value, what string, known []string, visit func(name string, v cue.Value)) {
	if !v.Exists() {
		return
	}
	it, err := v.Fields()
	if err != nil {
		r.wrong(err)
		return
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		if known != nil && !slices.Contains(known, name) {
			help := "remove it; there are " + strings.Join(known, ", ")
			if s := render.Nearest(name, known); s != "" {
				help = fmt.Sprintf("did you mean %s?", s)
			} else if what == "policies" && name == "waivers" {
				help = "write it beside policies, not in it"
			}
			r.fail(it.Value(), fmt.Sprintf("%s has no field %s", what, name), help)
			continue
		}
		visit(name, it.Value())
	}
}

// text reads a string.
func (r *reader) text(v cue.Value, name string) string {
	s, err := v.String()
	if err != nil {
		r.fail(v, name+" must be a string", "write it in quotes")
	}
	return s
}

func (r *reader) texts(v cue.Value, name string) []string {
	var out []string
	it, err := v.List()
	if err != nil {
		r.fail(v, name+" must be a list of strings", `write it as ["..."]`)
		return nil
	}
	for it.Next() {
		out = append(out, r.text(it.Value(), name))
	}
	return out
}

func (r *reader) flag(v cue.Value, name string) bool {
	b, err := v.Bool()
	if err != nil {
		r.fail(v, name+" must be true or false", "write true or false, without quotes")
	}
	return b
}

// loadRules reads the rules of a package.
func loadRules(pkg *render.Package, own bool) ([]*Rule, diag.List) {
	r := &reader{pkg: pkg}
	var out []*Rule
	group := pkg.Value.LookupPath(cue.ParsePath("rules"))
	if !group.Exists() {
		return nil, nil
	}
	r.fields(group, "", nil, func(id string, v cue.Value) {
		before := len(r.findings)
		rule := r.rule(id, v)
		rule.Own = own
		rule.broken = len(r.findings) > before
		out = append(out, rule)
	})
	slices.SortFunc(out, func(a, b *Rule) int { return strings.Compare(a.ID, b.ID) })
	return out, r.findings
}

func (r *reader) rule(id string, v cue.Value) *Rule {
	rule := &Rule{
		ID: id, value: v, cases: v.LookupPath(cue.ParsePath("cases")), Pos: r.pkg.Position(v),
		places: map[string]diag.Position{}, reads: map[string]*reads{}, known: map[string]answer{},
	}
	given := map[string]bool{}
	r.fields(v, "a rule", ruleFields(), func(name string, v cue.Value) {
		given[name] = true
		switch name {
		case "severity":
			before := len(r.findings)
			if rule.Severity = r.text(v, name); len(r.findings) == before && !slices.Contains([]string{"deny", "warn", "info"}, rule.Severity) {
				r.fail(v, fmt.Sprintf("%q is no severity", rule.Severity), "write deny, warn or info")
			}
		case "kind":
			if rule.Kind = r.text(v, name); !slices.Contains(kinds(), rule.Kind) {
				r.fail(v, fmt.Sprintf("rules can't be about the kind %q", rule.Kind), "write one of "+strings.Join(kinds(), ", "))
			}
		case "groups":
			rule.Groups = r.texts(v, name)
		case "title":
			rule.Title = r.text(v, name)
		case "why":
			rule.Why = r.text(v, name)
		case "help":
			rule.Help = r.text(v, name)
		case "params":
			rule.Params = source(v)
		case "object", "facts", "cluster":
			rule.reads[name] = declared(v)
			r.given(name, rule.reads[name], v)
		case "cases":
			r.fields(v, "", nil, func(name string, v cue.Value) { rule.places[name] = r.pkg.Position(v) })
		case "example":
			r.fields(v, "an example", []string{"good", "bad"}, func(name string, v cue.Value) {
				if name == "good" {
					rule.Good = source(v)
				} else {
					rule.Bad = source(v)
				}
			})
		}
	})
	for _, name := range []string{"severity", "kind", "title", "why", "help", "found"} {
		if !given[name] {
			r.fail(v, fmt.Sprintf("the rule %s has no %s", id, name), "add "+name)
		}
	}
	return rule
}

// given wants what a rule declares of facts and cluster to be what rules are given.
func (r *reader) given(input string, declared *reads, v cue.Value) {
	known := inputNames(input)
	if known == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(declared.fields)) {
		if slices.Contains(known, name) {
			continue
		}
		help := "there are " + strings.Join(known, ", ")
		if s := render.Nearest(name, known); s != "" {
			help = fmt.Sprintf("did you mean %s?", s)
		}
		r.fail(v.LookupPath(cue.MakePath(cue.Str(name).Optional())), fmt.Sprintf("%s has no field %s", input, name), help)
	}
}

// source is the text of a part of a rule, as it is written.
func source(v cue.Value) string {
	node := v.Source()
	if f, ok := node.(*ast.Field); ok {
		node = f.Value
	}
	if node == nil {
		return ""
	}
	// A struct alone is shown without its braces.
	if body, ok := node.(*ast.StructLit); ok {
		node = &ast.File{Decls: body.Elts}
	}
	text, err := format.Node(node)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// declared reads how much of an input a rule declares. Only a struct of plain fields
// is taken apart: whatever else it is, the rule gets all of it.
func declared(v cue.Value) *reads {
	out := &reads{}
	if op, _ := v.Expr(); v.IncompleteKind() != cue.StructKind || op == cue.OrOp || v.LookupPath(cue.MakePath(cue.AnyString)).Exists() {
		return out
	}
	it, err := v.Fields(cue.Optional(true))
	if err != nil {
		return out
	}
	for it.Next() {
		if out.fields == nil {
			out.fields = map[string]*reads{}
		}
		out.fields[it.Selector().Unquoted()] = declared(it.Value())
	}
	return out
}

// of returns the part of an input that is declared.
func (r *reads) of(v any) any {
	if r.fields == nil {
		return v
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := map[string]any{}
	for name, f := range r.fields {
		if x, ok := fields[name]; ok {
			out[name] = f.of(x)
		}
	}
	return out
}

// withoutCases takes the cases and examples off the rules of a file. CUE evaluates all of
// a rule for each object that is judged by it, and they are most of it.
func withoutCases(f *ast.File) {
	inside := func(decls []ast.Decl, visit func(*ast.Field, *ast.StructLit)) {
		for _, d := range decls {
			if field, ok := d.(*ast.Field); ok {
				if body, ok := field.Value.(*ast.StructLit); ok {
					visit(field, body)
				}
			}
		}
	}
	inside(f.Decls, func(rules *ast.Field, all *ast.StructLit) {
		if name, _, err := ast.LabelName(rules.Label); err != nil || name != "rules" {
			return
		}
		inside(all.Elts, func(_ *ast.Field, rule *ast.StructLit) {
			rule.Elts = slices.DeleteFunc(rule.Elts, func(d ast.Decl) bool {
				field, ok := d.(*ast.Field)
				if !ok {
					return false
				}
				name, _, err := ast.LabelName(field.Label)
				return err == nil && (name == "cases" || name == "example")
			})
			dropUnusedLets(rule)
		})
	})
}

// dropUnusedLets removes clauses that nothing refers to any more, which CUE treats as
// errors.
func dropUnusedLets(body *ast.StructLit) {
	for again := true; again; {
		again = false
		for i, d := range body.Elts {
			let, ok := d.(*ast.LetClause)
			if !ok || slices.ContainsFunc(body.Elts, func(other ast.Decl) bool { return other != d && mentions(other, let.Ident.Name) }) {
				continue
			}
			body.Elts = slices.Delete(body.Elts, i, i+1)
			again = true
			break
		}
	}
}

func mentions(n ast.Node, name string) (found bool) {
	ast.Walk(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	}, nil)
	return found
}

// quicken has rules judge without their cases, if they are the same then: a rule may
// refer to them.
func quicken(rules []*Rule, tree fs.FS, dir string) {
	pkg, findings := render.LoadPackage(tree, dir, "", withoutCases)
	if pkg == nil || findings.HasErrors() {
		return
	}
	for _, r := range rules {
		v := pkg.Value.LookupPath(cue.MakePath(cue.Str("rules"), cue.Str(r.ID)))
		if v.Exists() && v.Err() == nil {
			r.value = v
		}
	}
}

// readLibrary returns the rules that come with the binary, by name; for judging alone,
// without their cases and examples.
func readLibrary(judging bool) ([]*Rule, error) {
	tree, err := fs.Sub(library, "library")
	if err != nil {
		return nil, err
	}
	var edits []func(*ast.File)
	if judging {
		edits = append(edits, withoutCases)
	}
	pkg, findings := render.LoadPackage(tree, ".", "", edits...)
	var rules []*Rule
	if !findings.HasErrors() {
		rules, findings = loadRules(pkg, false)
	}
	if findings.HasErrors() {
		return nil, fmt.Errorf("read the library of rules: %s: %s", findings[0].Pos, findings[0].Message)
	}
	if !judging {
		quicken(rules, tree, ".")
	}
	return rules, nil
}
