package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

var judge = sync.OnceValue(func() *admission.Judge {
	j, err := admission.New(schemas.CRDs())
	if err != nil {
		panic(err)
	}
	return j
})

// documents reads manifests as a bundle of what an author wrote.
func documents(t *testing.T, file string, text []byte) render.Bundle {
	t.Helper()
	b, findings := render.Manifest(file, text)
	for _, f := range findings {
		if f.Code == render.CodeYAML {
			t.Fatalf("%s: %s", f.Pos, f.Message)
		}
	}
	return b
}

// TestChanges: what a commit does to live objects. An archive has head.yaml, what the
// commit declares; live.yaml, what the API server holds; maybe base.yaml, what was
// applied before; and wants the plan as text.
func TestChanges(t *testing.T) {
	files, err := filepath.Glob("testdata/change/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases (%v)", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string][]byte{}
			for _, f := range ar.Files {
				parts[f.Name] = f.Data
			}
			head := documents(t, "head.yaml", parts["head.yaml"])
			var base *render.Bundle
			if text, ok := parts["base.yaml"]; ok {
				b := documents(t, "base.yaml", text)
				base = &b
			}
			targets := Targets(head, base)
			live, isLive := parts["live.yaml"]
			against := Against{Kind: AgainstCommit, Commit: "base"}
			if isLive {
				against = Against{Kind: AgainstCluster}
				targets = observed(targets, documents(t, "live.yaml", live))
			}
			changes, drift := Changes(targets, judge(), isLive, "coppice")
			p := New("", against, len(head.Objects), changes, drift)
			var text bytes.Buffer
			if err := p.WriteText(&text, TextOptions{}); err != nil {
				t.Fatal(err)
			}
			text.WriteString("\n")
			for _, c := range changes {
				fmt.Fprintf(&text, "%s\n%s", c.Object, c.Diff)
			}
			if os.Getenv("UPDATE") != "" {
				setFile(ar, "want.txt", text.Bytes())
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(parts["want.txt"]), text.String()); diff != "" {
				t.Errorf("want.txt (-want +got):\n%s", diff)
			}
			var out, again bytes.Buffer
			if err := p.WriteJSON(&out); err != nil {
				t.Fatal(err)
			}
			var back Plan
			if err := json.Unmarshal(out.Bytes(), &back); err != nil {
				t.Fatal(err)
			}
			if err := back.WriteJSON(&again); err != nil || out.String() != again.String() {
				t.Errorf("the plan doesn't read back as it was written (%v):\n%s", err, cmp.Diff(out.String(), again.String()))
			}
		})
	}
}

// observed fills in what is live.
func observed(targets []Target, live render.Bundle) []Target {
	for _, o := range live.Objects {
		id, found := Of(o.Value), false
		for i := range targets {
			if targets[i].ID == id {
				targets[i].Live, found = o.Value, true
			}
		}
		if !found {
			targets = append(targets, Target{ID: id, Live: o.Value})
		}
	}
	return targets
}

// TestSecretsStayHidden: user data is in none of the forms of a plan, whichever way it
// changes.
func TestSecretsStayHidden(t *testing.T) {
	class := func(name, data string) map[string]any {
		spec := map[string]any{"role": "r"}
		if data != "" {
			spec["userData"] = data
		}
		return map[string]any{
			"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "JOIN-" + data}},
			"spec":     spec,
		}
	}
	a, b := "TOKEN-aaaaaaaa", "TOKEN-bbbbbbbb"
	targets := []Target{
		{ID: ID{Kind: "EC2NodeClass", Name: "new"}, Head: class("new", a)},
		{ID: ID{Kind: "EC2NodeClass", Name: "gone"}, Live: class("gone", a)},
		{ID: ID{Kind: "EC2NodeClass", Name: "same"}, Head: class("same", b), Live: class("same", a), Base: class("same", "TOKEN-cccccccc")},
		{ID: ID{Kind: "EC2NodeClass", Name: "first"}, Head: class("first", b), Live: class("first", "")},
	}
	changes, drift := Changes(targets, judge(), true, "coppice")
	p := New("", Against{Kind: AgainstCluster}, 3, changes, drift)
	var all bytes.Buffer
	if err := p.WriteJSON(&all); err != nil {
		t.Fatal(err)
	}
	for _, diff := range []bool{true, false} {
		if err := p.WriteText(&all, TextOptions{Diff: diff}); err != nil {
			t.Fatal(err)
		}
	}
	all.WriteString(p.Markdown(60000))
	if strings.Contains(all.String(), "TOKEN") {
		i := strings.Index(all.String(), "TOKEN")
		t.Errorf("a secret shows:\n%s", all.String()[max(0, i-200):i+20])
	}
	for _, c := range changes {
		if !strings.Contains(c.Diff, "userData: '***") {
			t.Errorf("%s doesn't say that user data changes:\n%s", c.Object, c.Diff)
		}
	}
	if len(drift) != 1 {
		t.Errorf("drift is of %d fields, want that of same alone", len(drift))
	}
}

// hostile are texts that try to be more than text where they are shown.
var hostile = []string{
	"@everyone", "#1", "![x](http://evil.example/p.png)", "[a](javascript:alert(1))", "<img src=x onerror=alert(1)>", "</summary></details>",
	"```\n# big\n```", "`````", "`", "a|b", "\u202eevil", "\x1b[31mred", "x\r\ny", "<!-- coppice -->", "http://evil.example", "www.evil.example", "ü\u200bx", "*b* _i_ ~s~", "&lt;",
}

func TestMarkdownHoldsNoMarkup(t *testing.T) {
	var targets []Target
	f := &Fleet{Nodes: 3, Replace: 1, Basis: hostile}
	for i, h := range hostile {
		obj := pool(h, int64(1))
		obj["metadata"].(map[string]any)["labels"] = map[string]any{h: h}
		live := pool(h, h)
		targets = append(targets,
			Target{ID: ID{Kind: "NodePool", Name: h}, File: h, Head: obj, Live: live, Base: pool(h, "x"+h)},
			Target{ID: ID{Kind: "NodePool", Name: "new" + h}, File: h, Head: obj})
		f.Pools = append(f.Pools, PoolEffect{Pool: h, Nodes: 1, Affected: []NodeEffect{{Node: h, Reason: h, Cause: []string{h}, Outcome: Held, Hold: &Hold{Code: "X", Message: h}}}, Gates: []Gate{{Message: h}}})
		f.Launches = append(f.Launches, Launch{Pool: h, Type: h, Count: i})
		f.Unplaced = append(f.Unplaced, Unplaced{Pod: h, Reason: h})
	}
	changes, drift := Changes(targets, judge(), true, "coppice")
	p := New("@everyone", Against{Kind: AgainstCluster, Commit: "`x`"}, len(hostile)*2, changes, drift)
	p.Commit, p.Notes, p.Fleet = "<b>", hostile, f
	for _, limit := range []int{MinMarkdown, 8000, 20000, 60000, 1 << 20} {
		text := p.Markdown(limit)
		if len(text) > limit {
			t.Errorf("%d bytes for a limit of %d", len(text), limit)
		}
		outside := balanced(t, text)
		for _, bad := range []string{"@e", "<img", "<b>", "](", "http://", "www.", "<!--", "\u202e", "\x1b", "\r", "\u200b", "*b*", "#1"} {
			if strings.Contains(strings.ReplaceAll(outside, `\](`, ""), bad) {
				t.Errorf("limit %d: %q is outside of code", limit, bad)
			}
		}
		if strings.ContainsAny(text, "\x1b\r\u202e\u200b") {
			t.Errorf("limit %d: a character that isn't printed is left", limit)
		}
	}
}

// balanced checks that fences, details and code spans are closed, and returns what is in
// none of them.
func balanced(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	ticks, depth := "", 0
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		run := l[:len(l)-len(strings.TrimLeft(l, "`"))]
		switch {
		case ticks != "":
			if len(run) >= len(ticks) && len(run) == len(l) {
				ticks = ""
			}
			continue
		case len(run) >= 3 && !strings.Contains(l[len(run):], "`"):
			ticks = run
			continue
		}
		if strings.HasPrefix(l, "<details><summary>") {
			// A block of HTML up to the next blank line: only code elements with escaped text.
			for {
				before, rest, ok := strings.Cut(l, "<code>")
				if !ok {
					break
				}
				inside, after, ok := strings.Cut(rest, "</code>")
				if !ok || strings.Contains(inside, "<") {
					t.Errorf("a summary isn't escaped: %s", l)
				}
				l = before + after
			}
		}
		l = spans(t, l)
		depth += strings.Count(l, "<details>") - strings.Count(l, "</details>")
		out.WriteString(l + "\n")
	}
	if ticks != "" || depth != 0 {
		t.Errorf("a fence (%q) or %d details are left open:\n%.2000s", ticks, depth, text)
	}
	return out.String()
}

// spans returns a line without its code spans.
func spans(t *testing.T, l string) string {
	var out strings.Builder
	for l != "" {
		i := strings.IndexByte(l, '`')
		if i < 0 || i > 0 && l[i-1] == '\\' {
			j := len(l)
			if i >= 0 {
				j = i + 1
			}
			out.WriteString(l[:j])
			l = l[j:]
			continue
		}
		out.WriteString(l[:i])
		l = l[i:]
		n := len(l) - len(strings.TrimLeft(l, "`"))
		end := -1
		for j := n; j < len(l); {
			if l[j] != '`' {
				j++
				continue
			}
			m := len(l[j:]) - len(strings.TrimLeft(l[j:], "`"))
			if m == n {
				end = j + m
				break
			}
			j += m
		}
		if end < 0 {
			t.Errorf("a code span isn't closed: %s", l)
			return out.String()
		}
		l = l[end:]
	}
	return out.String()
}

// TestMarkdownTruncates: whatever the limit, a plan of many objects says how many there
// are, and names as many as there is room for.
func TestMarkdownTruncates(t *testing.T) {
	var targets []Target
	for i := range 3000 {
		name := fmt.Sprintf("pool-%04d", i)
		targets = append(targets, Target{ID: ID{Kind: "NodePool", Name: name}, Head: pool(name, int64(2)), Live: pool(name, int64(1))})
	}
	changes, _ := Changes(targets, judge(), true, "coppice")
	p := New("one", Against{Kind: AgainstCluster}, len(targets), changes, nil)
	for _, limit := range []int{MinMarkdown, 32768, 60000, 1 << 20} {
		text := p.Markdown(limit)
		if len(text) > limit {
			t.Errorf("%d bytes for a limit of %d", len(text), limit)
		}
		balanced(t, text)
		if !strings.Contains(text, "3000 to change") {
			t.Errorf("the summary isn't there:\n%s", text)
		}
		shown := strings.Count(text, "NodePool/pool-")
		if limit < 1<<19 && !strings.Contains(text, fmt.Sprintf("%d more changed objects are not shown", 3000-shown)) {
			t.Errorf("limit %d: %d are named, and the rest isn't counted:\n%s", limit, shown, text[len(text)-300:])
		}
		if limit == 1<<20 && shown != 3000 {
			t.Errorf("%d of 3000 are named in a megabyte", shown)
		}
	}
}

func TestMarkdownCutsALongDiff(t *testing.T) {
	obj := pool("a", int64(1))
	labels := map[string]any{}
	for i := range 2000 {
		labels[fmt.Sprintf("l%04d", i)] = "`````" + strings.Repeat("x", i%50)
	}
	obj["metadata"].(map[string]any)["labels"] = labels
	changes, _ := Changes([]Target{{ID: ID{Kind: "NodePool", Name: "a"}, Head: obj}}, judge(), true, "coppice")
	text := New("", Against{Kind: AgainstCluster}, 1, changes, nil).Markdown(8000)
	balanced(t, text)
	if len(text) > 8000 || !strings.Contains(text, "lines of the diff left out here") {
		t.Errorf("%d bytes:\n%s", len(text), text[len(text)-300:])
	}
}

// TestChangesKnowNoOrder: the order of targets doesn't show.
func TestChangesKnowNoOrder(t *testing.T) {
	var targets []Target
	for i := range 12 {
		name := fmt.Sprint("p", i)
		targets = append(targets, Target{ID: ID{Kind: "NodePool", Name: name}, Head: pool(name, int64(i%3)), Live: pool(name, int64(1)), Base: pool(name, int64(2))})
	}
	render := func() string {
		changes, drift := Changes(targets, judge(), true, "coppice")
		var b bytes.Buffer
		p := New("", Against{Kind: AgainstCluster, At: time.Unix(0, 0)}, len(targets), changes, drift)
		if err := p.WriteJSON(&b); err != nil {
			t.Fatal(err)
		}
		return b.String() + p.Markdown(60000)
	}
	want := render()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 10 {
		rnd.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		if got := render(); got != want {
			t.Fatalf("another order gives another plan:\n%s", cmp.Diff(want, got))
		}
	}
}

func BenchmarkChanges(b *testing.B) {
	var targets []Target
	for i := range 3000 {
		name := fmt.Sprintf("pool-%04d", i)
		targets = append(targets, Target{ID: ID{Kind: "NodePool", Name: name}, Head: pool(name, int64(i%2)), Live: pool(name, int64(1)), Base: pool(name, int64(1))})
	}
	b.ReportAllocs()
	for b.Loop() {
		changes, drift := Changes(targets, judge(), true, "coppice")
		if len(changes) != 1500 {
			b.Fatal(len(changes))
		}
		New("", Against{}, len(targets), changes, drift).Markdown(60000)
	}
}
