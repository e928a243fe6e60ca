package render_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
)

// TestAnnotations writes options as the annotations that they compile to, in a manifest
// and in CUE: a mistake must be found where it stands.
func TestAnnotations(t *testing.T) {
	cases := map[string]struct {
		why, key, value, message string
		severity                 diag.Severity
	}{
		"pause":    {"an option with parts", "coppice.dev/pause", `{"until": "tomorrow", "author": "a", "reason": "r"}`, "until: write a time", diag.Error},
		"unread":   {"no JSON", "coppice.dev/budgets", `none`, "invalid character", diag.Error},
		"text":     {"an option that is text", "coppice.dev/min-savings", "much", "write a percentage", diag.Error},
		"nested":   {"an option of an option", "coppice.dev/consolidate-after-empty", "soon", "write a duration", diag.Error},
		"expiry":   {"it depends on the pool", "coppice.dev/soft-expire-after", "9000h", "must be shorter than expireAfter", diag.Error},
		"misspelt": {"nobody reads it", "coppice.dev/puase", "x", "nothing reads the annotation coppice.dev/puase", diag.Warning},
		"right":    {"nothing is wrong", "coppice.dev/min-savings", "5%", "", 0},
		"others":   {"another part reads it", "coppice.dev/prune", "disabled", "", 0},
		"own":      {"it is like none", "coppice.dev/my-own-thing", "x", "", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			annotation := "'" + c.key + "': '" + c.value + "'"
			manifest := "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\n  annotations:\n    " + annotation + "\nspec:\n  template:\n    spec:\n      requirements: []\n      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}\n"
			cue := "package cluster\n\nnodePools: a: {\n\tmetadata: annotations: {\n\n\t\t\"" + c.key + "\": #\"" + c.value + "\"#\n\t}\n\tspec: template: spec: {\n\t\trequirements: []\n\t\tnodeClassRef: {group: \"karpenter.k8s.aws\", kind: \"EC2NodeClass\", name: \"c\"}\n\t}\n}\n"
			_, inManifest := render.Manifest("a.yaml", []byte(manifest))
			_, inCUE := render.Render(fstest.MapFS{"a.cue": {Data: []byte(cue)}}, "")
			for form, found := range map[string]diag.List{"a.yaml": inManifest, "a.cue": inCUE} {
				var got diag.List
				for _, f := range found {
					if f.Code == render.CodeSugar {
						got = append(got, f)
					}
				}
				switch {
				case c.message == "" && len(got) > 0, c.message != "" && len(got) != 1:
					t.Errorf("%s: %s: %v", form, c.why, got)
				case c.message == "":
				case !strings.Contains(got[0].Message, c.message), got[0].Severity != c.severity, got[0].Pos.File != form, got[0].Pos.Line != 6:
					t.Errorf("%s: %s: %+v", form, c.why, got[0])
				}
			}
		})
	}
}
