package policies

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/coppice-dev/coppice/render"
)

// TestFaultsHideNothing has settings and rules with several faults each, of which every
// one is told, and nothing that only follows from them.
func TestFaultsHideNothing(t *testing.T) {
	tree := fstest.MapFS{
		"coppice.cue": {Data: []byte(`package coppice

policies: {
	apply: ["boom"]
	severity: zones: "deny"
}
waivers: [
	{rule: "zone", object: "NodePool/a", reason: "", author: "a", expires: "2026-13-29"},
	{rule: "boom", object: "NodePool/a", reason: "r", author: "a", expires: "2027-06-30"},
]
`)},
		"more.cue": {Data: []byte("package coppice\n\npolicies: severity: zones: \"warn\"\n")},
		"policies/p.cue": {Data: []byte(`package policies

rules: boom: {
	severity: "deny"
	kind:     "NodePool"
	title:    "t"
	why:      "w"
	help:     "h"
	object: spec: weight: int
	found: [if object.spec.weight > 3 {path: ["spec"], message: "m"}]
}
`)},
		"clusters/a/a.cue": {Data: []byte("package a\n\nnodePools: a: spec: template: spec: {nodeClassRef: {group: \"example.com\", kind: \"C\", name: \"c\"}, requirements: []}\n")},
	}
	b, found := render.Render(tree, "a")
	var text strings.Builder
	for _, f := range New(tree, Options{At: at()}).Check(b, found) {
		text.WriteString(f.Message + "\n")
	}
	got := text.String()
	for _, want := range []string{"the waiver has no reason", "is no date", "no rule or group of rules zone\n", "the rule boom fails"} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing says %q:\n%s", want, got)
		}
	}
	for _, wrong := range []string{"waives nothing", `"" is no severity`} {
		if strings.Contains(got, wrong) {
			t.Errorf("something says %q:\n%s", wrong, got)
		}
	}
}
