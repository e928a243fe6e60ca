package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/diag"
)

func TestHideFindings(t *testing.T) {
	secrets := UserData(map[string]any{"spec": map[string]any{"userData": "#!/bin/sh\nexport TOKEN=hunter2\n"}}, map[string]any{}, map[string]any{"spec": map[string]any{"userData": " "}})
	const token = "glpat-abcdefghij0123456789"
	for name, tt := range map[string]struct {
		why      string
		in, want diag.Finding
	}{
		"by field": {"the object may not evaluate", diag.Finding{Path: "spec.userData", Message: `conflicting values "hunter2" and 'x'`, Help: "not `hunter2`"},
			diag.Finding{Path: "spec.userData", Message: "conflicting values *** and ***", Help: "not ***"}},
		"by message": {"the path may be that of the object", diag.Finding{Message: `spec.userData: invalid value "hunter2`},
			diag.Finding{Message: "spec.userData: invalid value ***"}},
		"by value": {"in whatever form", diag.Finding{Path: "spec", Message: `rule: "#!/bin/sh\nexport TOKEN=hunter2\n" is bad`},
			diag.Finding{Path: "spec", Message: `rule: "***" is bad`}},
		"by looks": {"in whatever place", diag.Finding{Path: "spec.tags.a", Message: "is " + token, Help: token, Related: []diag.Related{{Message: token}}},
			diag.Finding{Path: "spec.tags.a", Message: "is ***", Help: "***", Related: []diag.Related{{Message: "***"}}}},
		"nothing": {"else stays", diag.Finding{Path: "spec.role", Message: `"x" is no role`, Help: "give 'y'"}, diag.Finding{Path: "spec.role", Message: `"x" is no role`, Help: "give 'y'"}},
	} {
		if diff := cmp.Diff(diag.List{tt.want}, HideFindings(diag.List{tt.in}, secrets)); diff != "" {
			t.Errorf("%s (%s) (-want +got):\n%s", name, tt.why, diff)
		}
	}
}
