package policies

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"cuelang.org/go/cue"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// Options say under which circumstances rules are applied.
type Options struct {
	// At is the time at which waivers are judged, and from which a week of budgets is.
	At time.Time `json:"at"`
	// Apply names rules and groups to apply besides those that the settings name. The
	// settings can't weaken them: they only raise their severity.
	Apply []string `json:"apply,omitempty"`
}

// soon is how long before its end a waiver is mentioned: two weeks, as long as a
// usual iteration of a team.
const soon = 14 * 24 * time.Hour

// Checker applies the policies of one tree. It must not be used by two goroutines at a
// time.
type Checker struct {
	tree    fs.FS
	options Options
	// once reads what follows: the rules of the library, those of the tree, and what is
	// wrong with them.
	once sync.Once
	// judging says that nobody wants to know about the library's cases and examples.
	judging      bool
	library, own []*Rule
	findings     diag.List
	// judged are the clusters that were checked, and uses says by number of the waivers
	// which of them had a use in one of these.
	judged map[string]bool
	uses   map[int]bool
}

// New prepares to apply the policies of a tree. A nil tree has none of its own.
func New(tree fs.FS, o Options) *Checker { return &Checker{tree: tree, options: o} }

// Check applies to a cluster's bundle what the settings say, and returns what the rules
// find. known is what is known about the bundle already.
func (c *Checker) Check(b render.Bundle, known diag.List) diag.List {
	s := c.Ruleset(b.Cluster)
	return append(s.Check(b, known), c.idleWaivers(s)...).Sorted()
}

// Ruleset are the rules of a tree and of the library, and which of them apply to one
// cluster.
type Ruleset struct {
	cluster  string
	rules    map[string]*Rule
	settings settings
	options  Options
	// chosen are the rules that apply, with their severity.
	chosen map[string]diag.Severity
	// forced are those of them that the caller named.
	forced   map[string]bool
	findings diag.List
}

// Prepare begins to read the rules, to judge by them and no more, if it looks as if they
// were needed. That goes on while the caller finds out what to apply them to.
func (c *Checker) Prepare() {
	c.judging = true
	if len(c.options.Apply) > 0 || hasRules(c.tree) {
		go c.load()
	}
}

// load reads the rules, once.
func (c *Checker) load() { c.once.Do(c.read) }

func (c *Checker) read() {
	var err error
	if c.library, err = readLibrary(c.judging); err != nil {
		c.findings = diag.List{{Code: CodeSettings, Message: err.Error(), Help: "this is a fault of the release; please report it"}}
	}
	if c.tree == nil {
		return
	}
	pkg, findings := render.LoadPackage(c.tree, rulesDir, "")
	c.findings = append(c.findings, findings...)
	if pkg != nil {
		c.own, findings = loadRules(pkg, true)
		quicken(c.own, c.tree, rulesDir)
		c.findings = append(c.findings, findings...)
	}
}

// Ruleset reads the rules and the settings for one of the clusters. Faults in them are
// findings of the Ruleset.
func (c *Checker) Ruleset(cluster string) *Ruleset {
	s := &Ruleset{cluster: cluster, rules: map[string]*Rule{}, options: c.options, chosen: map[string]diag.Severity{}, forced: map[string]bool{}}
	if c.tree != nil {
		s.settings, s.findings = loadSettings(c.tree, cluster)
		if !s.settings.given && len(c.options.Apply) == 0 && !hasRules(c.tree) {
			// There is nothing to apply: most trees have no settings.
			return s
		}
	}
	c.load()
	s.findings = append(s.findings, c.findings...)
	for _, r := range slices.Concat(c.library, c.own) {
		if s.rules[r.ID] != nil {
			s.findings = append(s.findings, diag.Finding{
				Code: CodeSettings, Message: fmt.Sprintf("the library has a rule %s", r.ID), Pos: r.Pos,
				Help: "give the rule another name: settings and waivers couldn't tell them apart",
			})
			continue
		}
		rule := *r
		s.rules[r.ID] = &rule
	}
	s.choose()
	return s
}

func hasRules(tree fs.FS) bool {
	if tree == nil {
		return false
	}
	_, err := fs.Lstat(tree, rulesDir)
	return err == nil
}

// Rules are all rules, by name; applied says which apply to the cluster.
func (s *Ruleset) Rules() []*Rule {
	var out []*Rule
	for _, id := range slices.Sorted(maps.Keys(s.rules)) {
		out = append(out, s.rules[id])
	}
	return out
}

// Applies returns the severity with which a rule applies to the cluster, or "".
func (s *Ruleset) Applies(id string) string {
	if severity, ok := s.chosen[id]; ok {
		return []string{"deny", "warn", "info"}[severity]
	}
	return ""
}

// Findings are what is wrong with the rules and settings themselves.
func (s *Ruleset) Findings() diag.List { return s.findings.Sorted() }

// named returns the rules that a name stands for: a rule, or all of a group.
func (s *Ruleset) named(name string) []string {
	if s.rules[name] != nil {
		return []string{name}
	}
	var out []string
	for id, r := range s.rules {
		if name == all && !r.Own || slices.Contains(r.Groups, name) {
			out = append(out, id)
		}
	}
	return out
}

// Groups are the names of groups of rules.
func (s *Ruleset) groups() []string {
	out := []string{all}
	for _, r := range s.rules {
		out = append(out, r.Groups...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Ruleset) choose() {
	own := s.settings.cluster.policies
	unknown := func(c choice) {
		names := append(slices.Sorted(maps.Keys(s.rules)), s.groups()...)
		help := "list them with 'coppice policy list'"
		if near := render.Nearest(c.name, names); near != "" {
			help = fmt.Sprintf("did you mean %s?", near)
		}
		s.findings = append(s.findings, diag.Finding{
			Code: CodeSettings, Message: fmt.Sprintf("there is no rule or group of rules %s", c.name), Pos: c.pos, Help: help,
		})
	}
	each := func(list []choice, visit func(id string)) {
		for _, c := range list {
			ids := s.named(c.name)
			if len(ids) == 0 {
				unknown(c)
			}
			for _, id := range ids {
				visit(id)
			}
		}
	}
	add := func(id string) {
		severity, _ := severityOf(s.rules[id].Severity)
		s.chosen[id] = severity
	}
	drop := func(id string) { delete(s.chosen, id) }
	each(s.settings.apply, add)
	each(s.settings.except, drop)
	each(own.apply, add)
	each(own.except, drop)
	for _, name := range s.options.Apply {
		each([]choice{{name: name}}, func(id string) {
			add(id)
			s.forced[id] = true
		})
	}
	for _, from := range []map[string]choice{s.settings.severity, own.severity} {
		for _, id := range slices.Sorted(maps.Keys(from)) {
			c := from[id]
			if s.rules[id] == nil {
				unknown(c)
			} else if before, ok := s.chosen[id]; ok {
				severity, _ := severityOf(c.value)
				if s.forced[id] && severity > before {
					s.inForce(id, "severity", c.pos)
					continue
				}
				s.chosen[id] = severity
			}
		}
	}
	layers := map[string][]params{}
	for _, from := range []map[string]params{s.settings.params, own.params} {
		for _, id := range slices.Sorted(maps.Keys(from)) {
			switch {
			case s.rules[id] == nil:
				unknown(choice{name: id, pos: from[id].pos})
			case s.forced[id]:
				s.inForce(id, "params", from[id].pos)
			default:
				layers[id] = append(layers[id], from[id])
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(layers)) {
		s.configure(s.rules[id], layers[id])
	}
	for _, w := range s.settings.waivers {
		if w.rule != "" && s.rules[w.rule] == nil {
			unknown(choice{name: w.rule, pos: w.pos})
		}
	}
}

// inForce tells that what the settings say about a rule is passed over.
func (s *Ruleset) inForce(id, what string, at diag.Position) {
	s.findings = append(s.findings, diag.Finding{
		Severity: diag.Warning, Code: CodeSettings, Pos: at,
		Message: fmt.Sprintf("what the tree says of the %s of %s doesn't count: the caller applies the rule, and the tree can't weaken it", what, id),
		Help:    "have it judged without --policies to see what the tree's own settings give",
	})
}

// configure sets the parameters of a rule: of each, what the last layer says. They come as
// data: a rule and the settings are values of different packages.
func (s *Ruleset) configure(r *Rule, layers []params) {
	fail := func(at diag.Position, message string) {
		s.findings = append(s.findings, diag.Finding{
			Code: CodeSettings, Message: fmt.Sprintf("the parameters of %s: %s", r.ID, message), Pos: at,
			Help: fmt.Sprintf("see 'coppice policy explain %s'", r.ID),
		})
	}
	type setting struct {
		name  cue.Selector
		value cue.Value
		pos   diag.Position
	}
	set := map[string]setting{}
	data := map[string]any{}
	for _, p := range layers {
		it, err := p.value.Fields()
		if err != nil {
			fail(p.pos, "they aren't a struct of parameters and their values")
			return
		}
		for it.Next() {
			name := it.Selector().Unquoted()
			set[name] = setting{it.Selector(), it.Value(), p.pos}
			text, err := it.Value().MarshalJSON()
			var x any
			if err == nil {
				err = json.Unmarshal(text, &x)
			}
			if err != nil {
				fail(p.pos, firstLine(err))
				return
			}
			data[name] = whole(x)
		}
	}
	at := cue.ParsePath("params")
	declared, value := r.value.LookupPath(at), r.value.FillPath(at, data)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		p := set[name]
		if !declared.LookupPath(cue.MakePath(p.name.Optional())).Exists() {
			fail(p.pos, fmt.Sprintf("there is no parameter %s", p.name))
			return
		}
		if value.LookupPath(cue.MakePath(cue.Str("params"), p.name)).Validate(cue.Concrete(true)) != nil {
			fail(p.pos, fmt.Sprintf("%s can't be %v", p.name, p.value))
			return
		}
	}
	r.value, r.known = value, map[string]answer{}
}

// whole makes integers of a JSON tree integers again.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, x := range v {
			out[name] = whole(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = whole(x)
		}
		return out
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

// Check judges a bundle by the rules that apply to it. known is what is known about it
// already: an object that couldn't be evaluated isn't judged.
func (s *Ruleset) Check(b render.Bundle, known diag.List) diag.List {
	findings := slices.Clone(s.findings)
	unevaluated, faulty := map[string]bool{}, map[string]bool{}
	for _, f := range known {
		if f.Severity == diag.Error {
			faulty[f.Object] = true
			if strings.HasPrefix(f.Code, "CUE") {
				unevaluated[f.Object] = true
			}
		}
	}
	var survey *surveyor
	facts := func(o render.Object) any {
		if o.GVK.Kind != "NodePool" {
			return map[string]any{}
		}
		if survey == nil {
			survey = newSurveyor(b, s.options.At)
		}
		return survey.about(o).value()
	}
	for _, o := range b.Objects {
		if unevaluated[o.ID()] {
			continue
		}
		in := input{object: o.Value, cluster: map[string]any{"name": b.Cluster, "production": s.settings.cluster.production}}
		for _, id := range slices.Sorted(maps.Keys(s.chosen)) {
			r := s.rules[id]
			if r.broken || r.Kind != o.GVK.Kind {
				continue
			}
			if in.facts == nil && r.reads["facts"] != nil {
				in.facts = facts(o)
			}
			a := r.judge(in)
			if a.err != nil {
				for i, w := range s.settings.waivers {
					// What the rule would say isn't known.
					s.settings.waivers[i].used = w.used || w.covers(id, o.ID(), s.cluster)
				}
				if !faulty[o.ID()] {
					findings = append(findings, diag.Finding{
						Code: CodeEvaluation, Message: fmt.Sprintf("the rule %s fails: %s", id, firstLine(a.err)), Pos: r.Pos, Object: o.ID(),
						Help: "declare what the rule reads below object, with defaults for what may be absent, and add a case for such an object",
					})
				}
				continue
			}
			for _, hit := range a.hits {
				findings = append(findings, s.finding(r, o, hit))
			}
		}
	}
	return append(findings, s.waiverFindings(unevaluated)...).Sorted()
}

// finding words one hit of a rule, or tells that it is waived.
func (s *Ruleset) finding(r *Rule, o render.Object, h hit) diag.Finding {
	f := diag.Finding{
		Severity: s.chosen[r.ID], Code: r.ID, Message: h.message, Help: r.Help,
		Pos: o.Position(h.path...), Object: o.ID(), Path: render.PathString(h.path),
	}
	// A rule may be more or less strict about a case than about others, but what the
	// settings say about the rule goes for all.
	if level, ok := severityOf(h.severity); ok {
		if own, overridden := s.overridden(r.ID); !overridden {
			f.Severity = level
		} else if s.forced[r.ID] {
			f.Severity = min(level, own)
		}
	}
	if r.Own {
		f.Related = []diag.Related{{Pos: r.Pos, Message: "the rule stands here"}}
	}
	for i := range s.settings.waivers {
		w := &s.settings.waivers[i]
		if w.broken || !w.covers(r.ID, o.ID(), s.cluster) {
			continue
		}
		w.used = true
		if s.forced[r.ID] {
			f.Related = append(f.Related, diag.Related{Pos: w.pos, Message: "the waiver doesn't count: the caller applies the rule, and the tree can't weaken it"})
			continue
		}
		if !w.expired(s.options.At) {
			f.Severity = diag.Info
			f.Message += fmt.Sprintf(" (waived until %s by %s: %s)", w.expires.Format(time.DateOnly), w.author, w.reason)
			f.Help = ""
			f.Related = []diag.Related{{Pos: w.pos, Message: "the waiver stands here"}}
			break
		}
	}
	return f
}

// overridden returns the severity that the settings give to a rule, if they do.
func (s *Ruleset) overridden(id string) (diag.Severity, bool) {
	c, ok := s.settings.cluster.policies.severity[id]
	if !ok {
		c, ok = s.settings.severity[id]
	}
	severity, _ := severityOf(c.value)
	return severity, ok
}

// waiverFindings tells of waivers that have ended or soon will, and of those that waive
// nothing. Nothing waives a rule for an object that isn't judged.
func (s *Ruleset) waiverFindings(unevaluated map[string]bool) diag.List {
	var out diag.List
	unjudged := func(pattern string) bool {
		return unevaluated[""] || slices.ContainsFunc(slices.Collect(maps.Keys(unevaluated)), func(object string) bool {
			ok, err := path.Match(pattern, object)
			return ok && err == nil
		})
	}
	for i, w := range s.settings.waivers {
		if w.broken || s.rules[w.rule] == nil || !w.inCluster(s.cluster) {
			continue
		}
		s.settings.waivers[i].unjudged = unjudged(w.object)
		f := diag.Finding{Severity: diag.Warning, Code: CodeWaiver, Pos: w.pos}
		last := w.expires.Format(time.DateOnly)
		switch {
		case w.expired(s.options.At):
			f.Message = fmt.Sprintf("the waiver of %s for %s expired on %s", w.rule, w.object, last)
			f.Help = "keep the rule and remove the waiver, or have it renewed by " + w.author
		case w.used && s.options.At.Add(soon).After(w.expires.AddDate(0, 0, 1)):
			f.Message = fmt.Sprintf("the waiver of %s for %s ends on %s", w.rule, w.object, last)
			f.Help = "keep the rule by then, or have it renewed by " + w.author
		case !w.used && !unjudged(w.object) && (s.cluster == "" || w.cluster == s.cluster):
			f = w.idle("waives nothing")
		default:
			continue
		}
		out = append(out, f)
	}
	return out
}

// idleWaivers tells of waivers for several clusters that waive nothing in any of them, as
// soon as the last of these was checked, and of those for clusters that there aren't.
func (c *Checker) idleWaivers(s *Ruleset) diag.List {
	if c.tree == nil || len(s.settings.waivers) == 0 {
		return nil
	}
	clusters, err := render.Clusters(c.tree)
	if err != nil {
		return nil // Rendering says so.
	}
	if c.judged == nil {
		c.judged, c.uses = map[string]bool{}, map[int]bool{}
	}
	c.judged[s.cluster] = true
	var out diag.List
	for i, w := range s.settings.waivers {
		if w.broken || s.rules[w.rule] == nil || w.expired(s.options.At) {
			continue
		}
		c.uses[i] = c.uses[i] || w.used || w.unjudged
		of := slices.DeleteFunc(slices.Clone(clusters), func(name string) bool { return !w.inCluster(name) })
		switch {
		case len(of) == 0 && len(c.judged) == 1:
			f := w.idle(fmt.Sprintf("waives nothing: the tree has no cluster %s", w.cluster))
			if near := render.Nearest(w.cluster, clusters); near != "" {
				f.Help = fmt.Sprintf("did you mean %s?", near)
			}
			out = append(out, f)
		case c.uses[i] || w.cluster == s.cluster || s.cluster == "" || !slices.Contains(of, s.cluster):
		case !slices.ContainsFunc(of, func(name string) bool { return !c.judged[name] }):
			out = append(out, w.idle("waives nothing"))
		}
	}
	return out
}

// idle is the finding about a waiver that has no use.
func (w waiver) idle(what string) diag.Finding {
	return diag.Finding{
		Severity: diag.Warning, Code: CodeWaiver, Pos: w.pos,
		Message: fmt.Sprintf("the waiver of %s for %s %s", w.rule, w.object, what), Help: "remove it",
	}
}

// value is the facts as CUE gets them.
func (f Facts) value() any {
	text, err := json.Marshal(f)
	var out any
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(fmt.Sprintf("policies: facts without a JSON form: %v", err))
	}
	return whole(out)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
