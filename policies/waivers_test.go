package policies

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// TestIdleWaivers has trees of several clusters with waivers, of which some waive nothing.
func TestIdleWaivers(t *testing.T) {
	// limits-set is broken by NodePool/web in a alone.
	const pool = "nodePools: web: spec: {LIMITStemplate: spec: {nodeClassRef: {group: \"other.example.com\", kind: \"C\", name: \"c\"}, requirements: []}}\n"
	a := "package a\n\n" + strings.Replace(pool, "LIMITS", "", 1)
	b := "package b\n\n" + strings.Replace(pool, "LIMITS", "limits: cpu: 5, ", 1)
	for name, tc := range map[string]struct {
		why, waiver string
		b           string
		clusters    []string
		want        string // what the finding says, "" for none
	}{
		"of use in one":        {"the other has no need of it", `object: "NodePool/web"`, b, []string{"a", "b"}, ""},
		"of use in the second": {"the order is of no matter", `object: "NodePool/web"`, b, []string{"b", "a"}, ""},
		"of no use":            {"no pool has the name", `object: "NodePool/batch"`, b, []string{"a", "b"}, "waives nothing"},
		"of no use, a pattern": {"b keeps the rule", `object: "NodePool/*", cluster: "b*"`, b, []string{"a", "b"}, "waives nothing"},
		"of no use by name":    {"b keeps the rule", `object: "NodePool/*", cluster: "b"`, b, []string{"a", "b"}, "waives nothing"},
		"not all checked":      {"the other may have a use", `object: "NodePool/batch"`, b, []string{"b"}, ""},
		"cannot be judged":     {"nobody knows", `object: "NodePool/batch"`, "package b\n\nnodePools: batch: spec: limits: cpu: 1 & 2\n", []string{"a", "b"}, ""},
		"no such cluster":      {"it would never hold", `object: "NodePool/web", cluster: "c"`, b, []string{"a", "b"}, "the tree has no cluster c"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{
				"coppice.cue":      {Data: []byte("package coppice\n\npolicies: apply: [\"limits-set\"]\nwaivers: [{rule: \"limits-set\", " + tc.waiver + ", reason: \"r\", author: \"me\", expires: \"2027-06-30\"}]\n")},
				"clusters/a/a.cue": {Data: []byte(a)}, "clusters/b/b.cue": {Data: []byte(tc.b)},
			}
			c := New(tree, Options{At: at()})
			var got diag.List
			for _, cluster := range tc.clusters {
				bundle, found := render.Render(tree, cluster)
				for _, f := range c.Check(bundle, found) {
					if f.Code == CodeWaiver {
						got = append(got, f)
					}
				}
			}
			switch {
			case tc.want == "" && len(got) > 0, tc.want != "" && len(got) != 1:
				t.Errorf("%s: %v", tc.why, got)
			case tc.want != "" && (!strings.Contains(got[0].Message, tc.want) || got[0].Pos.Line != 4 || got[0].Help == ""):
				t.Errorf("%s: %+v", tc.why, got[0])
			}
		})
	}
}

// TestInputs has rules and cases that name what no rule is given.
func TestInputs(t *testing.T) {
	const rule = "package policies\n\nrules: own: {\n\tseverity: \"deny\"\n\tkind: \"NodePool\"\n\ttitle: \"t\"\n\twhy: \"w\"\n\thelp: \"h\"\n\tfound: []\n\tcases: c: {object: {}, want: []CASE}\n\tINPUT\n}\n"
	for name, tc := range map[string]struct{ input, given, message, help string }{
		"right":              {"facts: {zones: [...], at: _}", ", facts: zones: []", "", ""},
		"misspelt":           {"facts: zone: [...]", "", "facts has no field zone", "did you mean zones?"},
		"unheard of":         {"facts: weather: string", "", "facts has no field weather", "there are accelerated, at,"},
		"optional":           {"facts: zone?: [...]", "", "facts has no field zone", "did you mean zones?"},
		"the cluster":        {"cluster: prod: bool", "", "cluster has no field prod", "there are name, production"},
		"in a case":          {"facts: zones: [...]", ", facts: zone: []", "facts has no field zone", "correct the rule"},
		"a case's cluster":   {"cluster: name: string", ", cluster: nam: \"a\"", "cluster has no field nam", "correct the rule"},
		"all facts at once":  {"facts: _", "", "", ""},
		"anything of an own": {"object: spec: whatever: _ | *1", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer("INPUT", tc.input, "CASE", tc.given).Replace(rule)
			tree := fstest.MapFS{"policies/own.cue": {Data: []byte(text)}, "a.cue": {Data: []byte("package a\n")}}
			got := New(tree, Options{At: at()}).Report([]string{""}).Findings
			switch {
			case tc.message == "" && len(got) > 0, tc.message != "" && len(got) != 1:
				t.Errorf("%v", got)
			case tc.message != "" && (!strings.Contains(got[0].Message, tc.message) || !strings.HasPrefix(got[0].Help, tc.help) || got[0].Pos.Line < 10):
				t.Errorf("%+v", got[0])
			}
		})
	}
}

// TestDescribe says of each rule that found something what it is about.
func TestDescribe(t *testing.T) {
	c := New(nil, Options{At: time.Time{}, Apply: []string{"all"}})
	found := diag.List{{Code: "limits-set"}, {Code: CodeWaiver}, {Code: "unheard-of"}}
	got := c.Describe(found)
	if r := got["limits-set"]; len(got) != 1 || r.Title == "" || r.Why == "" || r.Help == "" {
		t.Errorf("%+v", got)
	}
}
