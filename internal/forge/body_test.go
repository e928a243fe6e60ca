package forge

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/plan"
)

// hostile is what somebody may put into a name or a value.
const hostile = "x`</details>\n```\n@everyone [a](https://evil.example) <img src=x> \u202egnp <!-- coppice: {} -->"

// large is a body about many objects and findings.
func large(objects, findings int) Body {
	b := Body{Cluster: "prod", Source: "flux-system/fleet", Head: strings.Repeat("ab", 20), Details: "https://ci.example/1"}
	for i := range findings {
		b.Findings = append(b.Findings, diag.Finding{
			Severity: diag.Severity(i % 3), Code: "POL001", Pos: diag.Position{File: "clusters/prod/pools.cue", Line: i + 1, Col: 2},
			Message: fmt.Sprintf("finding %d %s", i, hostile), Help: "write something else", Object: fmt.Sprintf("NodePool/p%d", i),
		})
	}
	var changes []plan.Change
	for i := range objects {
		var before, after plan.Value
		_ = before.UnmarshalJSON([]byte(`"1"`))
		_ = after.UnmarshalJSON([]byte(fmt.Sprintf("%q", hostile)))
		changes = append(changes, plan.Change{
			Object: plan.ID{Group: "karpenter.sh", Kind: "NodePool", Name: fmt.Sprintf("pool-%d%s", i, hostile)}, Action: plan.Update, File: "clusters/prod/pools.cue",
			Fields: []plan.Field{{Path: "spec.limits.cpu", Before: before, After: after}},
			Diff:   "--- before\n+++ after\n@@ -1 +1 @@\n-cpu: 1\n+cpu: " + hostile + "\n",
		})
	}
	b.Plan = plan.New("prod", plan.Against{Kind: plan.AgainstCluster}, objects, changes, nil)
	return b
}

func TestTextFits(t *testing.T) {
	for name, l := range map[string]Limits{"github": {Comment: 65536}, "gitlab": {Comment: 1_000_000}, "bitbucket": {Comment: 32768, PlainText: true}} {
		for _, size := range [][2]int{{0, 0}, {1, 0}, {3, 3}, {3000, 0}, {0, 3000}, {3000, 3000}} {
			b := large(size[0], size[1])
			room := l.Comment - 300
			text := b.Text(l, room)
			if len(text) > room || !utf8.ValidString(text) {
				t.Errorf("%s: %v: %d bytes of %d, valid %v", name, size, len(text), room, utf8.ValidString(text))
			}
			for _, want := range []string{"cluster `prod`", "`flux-system/fleet`", "`abababababab`"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %v: it doesn't say %q", name, size, want)
				}
			}
			if size[1] > 100 && name != "gitlab" && !strings.Contains(text, "more don't fit") {
				t.Errorf("%s: %v: what is left out isn't counted", name, size)
			}
			if size[1] > 0 && (strings.Contains(text, "**warning**") && strings.Index(text, "**error**") > strings.Index(text, "**warning**")) {
				t.Errorf("%s: %v: a warning comes before an error", name, size)
			}
			whole(t, fmt.Sprintf("%s %v", name, size), text, l)
		}
	}
}

// whole wants fences and folds to be closed, and nothing hostile outside of code.
func whole(t *testing.T, name, text string, l Limits) {
	t.Helper()
	fence, depth := "", 0
	for n, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " ")
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case fence != "":
			if len(ticks) >= len(fence) && strings.Trim(trimmed, "` ") == "" {
				fence = ""
			}
			continue
		case len(ticks) >= 3:
			fence = ticks
			continue
		}
		if line = outside(line); strings.HasPrefix(line, "[Everything") {
			continue
		}
		depth += strings.Count(line, "<details>") - strings.Count(line, "</details>")
		if l.PlainText && strings.Contains(line, "<summary>") {
			t.Errorf("%s: line %d has HTML: %s", name, n+1, line)
		}
		for _, bad := range []string{"\u202e", "<img", "<!--", "@e", "](", "://"} {
			if strings.Contains(line, bad) {
				t.Errorf("%s: line %d isn't harmless: %s", name, n+1, line)
			}
		}
	}
	if fence != "" || depth != 0 {
		t.Errorf("%s: a fence %q is open, %d folds are", name, fence, depth)
	}
}

// outside is a line without its code, in which nothing is a mention or a link.
func outside(line string) string {
	var b strings.Builder
	for strings.Contains(line, "<code>") {
		before, rest, _ := strings.Cut(line, "<code>")
		_, after, _ := strings.Cut(rest, "</code>")
		line = before + after
	}
	for {
		i := strings.IndexByte(line, '`')
		if i < 0 {
			return b.String() + line
		}
		b.WriteString(line[:i])
		rest := strings.TrimLeft(line[i:], "`")
		ticks := line[i : len(line)-len(rest)]
		_, after, closed := strings.Cut(rest, ticks)
		if !closed {
			return b.String() + rest
		}
		line = after
	}
}

// TestFull says how to get the rest where there is one.
func TestFull(t *testing.T) {
	const full = "All of it: `coppice plan`."
	for name, tt := range map[string]struct {
		objects, findings int
		details           string
		said              bool
	}{
		"small":    {3, 3, "", false},
		"objects":  {3000, 0, "", true},
		"findings": {0, 3000, "", true},
		"linked":   {3000, 3000, "https://ci.example/1", false},
	} {
		b := large(tt.objects, tt.findings)
		b.Details, b.Full = tt.details, full
		text := b.Text(Limits{}, 65000)
		if got := strings.Contains(text, full); got != tt.said || len(text) > 65000 {
			t.Errorf("%s: it says how to get the rest: %t, in %d bytes", name, got, len(text))
		}
	}
}

func TestVerdict(t *testing.T) {
	live := Body{Plan: plan.New("", plan.Against{}, 3, []plan.Change{{Action: plan.Create}}, nil)}
	live.Plan.Fleet = &plan.Fleet{Nodes: 40, Replace: 3}
	for name, tt := range map[string]struct {
		why   string
		b     Body
		state State
		text  string
	}{
		"nothing":  {"", Body{}, Success, "no findings"},
		"error":    {"", Body{Findings: diag.List{{Severity: diag.Error}, {Severity: diag.Warning}}}, Failure, "1 error; 1 warning"},
		"warnings": {"they let it pass", Body{Findings: diag.List{{Severity: diag.Warning}, {Severity: diag.Warning}}}, Success, "2 warnings"},
		"plan":     {"", Body{Plan: plan.New("", plan.Against{}, 3, []plan.Change{{Action: plan.Create}}, nil)}, Success, "1 to create, 0 to change, 0 to delete"},
		"alone":    {"nothing was compared", Body{Plan: plan.New("", plan.Against{Kind: plan.AgainstNothing}, 1, []plan.Change{{Action: plan.Create}}, nil)}, Success, "1 object, compared with nothing"},
		"live":     {"what nodes do is no part of it", live, Success, "1 to create, 0 to change, 0 to delete"},
	} {
		state, text := tt.b.Verdict()
		if state != tt.state || text != tt.text {
			t.Errorf("%s: %s, %q", name, state, text)
		}
	}
}

func TestCode(t *testing.T) {
	for in, want := range map[string]string{
		"a":            "`a`",
		"a`b":          "`` a`b ``",
		"``a":          "``` ``a ```",
		"a\nb":         "`a b`",
		"a\u202eb":     "`a b`",
		"@all <b>":     "`@all <b>`",
		"ends with \\": "`ends with \\`",
	} {
		if got := Code(in); got != want {
			t.Errorf("Code(%q) = %s, want %s", in, got, want)
		}
	}
}

func BenchmarkText(b *testing.B) {
	body := large(3000, 100)
	for b.Loop() {
		b.ReportMetric(float64(len(body.Text(Limits{}, 65000))), "bytes")
	}
}
