package policies

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// selection says which rules apply, and how.
type selection struct {
	apply, except []choice
	severity      map[string]choice
	params        map[string]params
}

// choice is a name in the settings.
type choice struct {
	name string
	pos  diag.Position
	// value is what is chosen for it, if anything is.
	value string
}

type params struct {
	value cue.Value
	pos   diag.Position
}

// clusterSettings are what the settings say about one cluster.
type clusterSettings struct {
	production bool
	policies   selection
}

// waiver lets an object break a rule for a while.
type waiver struct {
	rule, object, cluster, reason, author string
	// expires is the day after which it doesn't hold, in UTC.
	expires time.Time
	pos     diag.Position
	// broken says that it can't be read.
	broken bool
	used   bool
	// unjudged says that an object that it may be about couldn't be evaluated.
	unjudged bool
}

// settings are the package coppice at the root of a tree.
type settings struct {
	// given says that there are settings.
	given bool
	selection
	waivers []waiver
	cluster clusterSettings
}

// loadSettings reads the settings of a tree, for one cluster of it.
func loadSettings(tree fs.FS, cluster string) (settings, diag.List) {
	pkg, findings := render.LoadPackage(tree, ".", render.SettingsPackage)
	if pkg == nil {
		return settings{}, findings
	}
	r := &reader{pkg: pkg, findings: findings}
	s := settings{given: true}
	clusters := pkg.Value.LookupPath(cue.ParsePath("clusters"))
	r.fields(pkg.Value, "the settings", []string{"policies", "clusters", "waivers", "deletes"}, func(name string, v cue.Value) {
		switch name {
		case "policies":
			s.selection = r.selection(v)
		case "waivers":
			s.waivers = r.waivers(v)
		case "deletes":
			r.deletes(tree)
		}
	})
	if clusters.Exists() {
		r.clusters(tree, clusters)
	}
	if cluster != "" && clusters.Exists() {
		// With the cluster's name as a field, patterns such as [=~"^prod-"] apply to it.
		at := cue.MakePath(cue.Str("clusters"), cue.Str(cluster))
		r.fields(pkg.Value.FillPath(at, map[string]any{}).LookupPath(at), "a cluster's settings", []string{"production", "policies"}, func(name string, v cue.Value) {
			switch name {
			case "production":
				s.cluster.production = r.flag(v, name)
			case "policies":
				s.cluster.policies = r.selection(v)
			}
		})
	}
	return s, r.findings
}

// deletes wants confirmed deletions to be what the controller reads.
func (r *reader) deletes(tree fs.FS) {
	text, err := fs.ReadFile(tree, render.SettingsPackage+".cue")
	if err != nil {
		return // The list may stand in another file, which the controller doesn't read.
	}
	_, findings := render.Deletions(text)
	for _, f := range findings {
		f.Code = CodeSettings
		r.findings = append(r.findings, f)
	}
}

// clusters wants the clusters that are named to be there.
func (r *reader) clusters(tree fs.FS, v cue.Value) {
	names, err := render.Clusters(tree)
	if err != nil {
		return // Rendering says so.
	}
	r.fields(v, "", nil, func(name string, v cue.Value) {
		if slices.Contains(names, name) {
			return
		}
		help := "remove it, or add the folder clusters/" + name
		if s := render.Nearest(name, names); s != "" {
			help = fmt.Sprintf("did you mean %s?", s)
		}
		r.fail(v, fmt.Sprintf("the tree has no cluster %s", name), help)
	})
}

func (r *reader) selection(v cue.Value) selection {
	s := selection{severity: map[string]choice{}, params: map[string]params{}}
	r.fields(v, "policies", []string{"apply", "except", "severity", "params"}, func(name string, v cue.Value) {
		switch name {
		case "apply":
			s.apply = r.choices(v, name)
		case "except":
			s.except = r.choices(v, name)
		case "severity":
			r.fields(v, "", nil, func(rule string, v cue.Value) {
				before := len(r.findings)
				level := r.text(v, "a severity")
				if len(r.findings) > before {
					return
				}
				if _, ok := severityOf(level); !ok {
					r.fail(v, fmt.Sprintf("%q is no severity", level), "write deny, warn or info")
					return
				}
				s.severity[rule] = choice{rule, r.pkg.Position(v), level}
			})
		case "params":
			r.fields(v, "", nil, func(rule string, v cue.Value) {
				s.params[rule] = params{v, r.pkg.Position(v)}
			})
		}
	})
	return s
}

func (r *reader) choices(v cue.Value, name string) []choice {
	var out []choice
	it, err := v.List()
	if err != nil {
		r.fail(v, name+" must be a list of names of rules and groups", `write it as ["all"]`)
		return nil
	}
	for it.Next() {
		out = append(out, choice{name: r.text(it.Value(), name), pos: r.pkg.Position(it.Value())})
	}
	return out
}

func (r *reader) waivers(v cue.Value) []waiver {
	var out []waiver
	it, err := v.List()
	if err != nil {
		r.fail(v, "waivers must be a list", "write it as [{rule: ..., object: ..., reason: ..., author: ..., expires: ...}]")
		return nil
	}
	for it.Next() {
		item := it.Value()
		w := waiver{pos: r.pkg.Position(item)}
		before := len(r.findings)
		texts := map[string]*string{"rule": &w.rule, "object": &w.object, "cluster": &w.cluster, "reason": &w.reason, "author": &w.author}
		expires := ""
		texts["expires"] = &expires
		r.fields(item, "a waiver", slices.Sorted(maps.Keys(texts)), func(name string, v cue.Value) {
			*texts[name] = r.text(v, name)
			if w.rule != "" && name == "rule" {
				w.pos = r.pkg.Position(v)
			}
		})
		for _, name := range []string{"rule", "object", "reason", "author", "expires"} {
			if strings.TrimSpace(*texts[name]) == "" {
				r.fail(item, "the waiver has no "+name, map[string]string{
					"rule": "name the rule that it is about", "object": `name the object, as in "NodePool/legacy"`,
					"reason": "say why the rule can't be kept", "author": "say who answers for it",
					"expires": `say when it ends, as in "2027-01-31"`,
				}[name])
			}
		}
		if expires != "" {
			day, err := time.Parse(time.DateOnly, expires)
			if err != nil {
				r.fail(item.LookupPath(cue.ParsePath("expires")), fmt.Sprintf("%q is no date", expires), `write the last day on which the waiver holds, as in "2027-01-31"`)
			}
			w.expires = day
		}
		for _, pattern := range []string{w.object, w.cluster} {
			if _, err := path.Match(pattern, ""); err != nil {
				r.fail(item, fmt.Sprintf("the pattern %q can't be read", pattern), "write a name, or a pattern such as NodePool/batch-*")
			}
		}
		w.broken = len(r.findings) > before
		out = append(out, w)
	}
	return out
}

// covers reports whether the waiver is about a rule, an object and a cluster.
func (w waiver) covers(rule, object, cluster string) bool {
	ok, _ := path.Match(w.object, object)
	return ok && w.rule == rule && w.inCluster(cluster)
}

func (w waiver) inCluster(cluster string) bool {
	ok, _ := path.Match(w.cluster, cluster)
	return w.cluster == "" || ok
}

// expired reports whether its last day is over.
func (w waiver) expired(at time.Time) bool { return !at.Before(w.expires.AddDate(0, 0, 1)) }
