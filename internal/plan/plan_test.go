package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"
)

func decode(t *testing.T, data []byte) map[string]any {
	t.Helper()
	js, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(js, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDrift reads testdata/*.txtar: git.yaml is what the author wrote, want.yaml
// what the API server makes of it (git.yaml if left out), live.yaml what is there
// (missing if left out). report.yaml, report.md and message.txt are the outcome.
func TestDrift(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
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
			o := Observed{File: "clusters/one/pools.cue", Git: decode(t, parts["git.yaml"])}
			o.ID = ID{Kind: o.Git["kind"].(string), Name: o.Git["metadata"].(map[string]any)["name"].(string)}
			o.Want = o.Git
			if data, ok := parts["want.yaml"]; ok {
				o.Want = decode(t, data)
			}
			if data, ok := parts["live.yaml"]; ok {
				o.Live = decode(t, data)
			}
			r := Report{
				Cluster: "one", Source: "fleet/nodes", Repository: "https://git.example.com/fleet.git",
				Differences: Drift([]Observed{o}),
			}
			message, err := r.Message("main@sha1:0123", "", false)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]byte{"message.txt": []byte(message)}
			got["report.yaml"], got["report.md"] = []byte{}, []byte{}
			if len(r.Differences) > 0 {
				got["report.yaml"], got["report.md"] = r.Encode(), r.Markdown()
				if doc := decode(t, r.Encode()); len(doc["drift"].([]any)) != len(r.Differences) {
					t.Errorf("the report reads back as %v", doc)
				}
			}
			for _, name := range []string{"report.yaml", "report.md", "message.txt"} {
				if os.Getenv("UPDATE") != "" {
					setFile(ar, name, got[name])
				} else if diff := cmp.Diff(string(parts[name]), string(got[name])); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func setFile(ar *txtar.Archive, name string, data []byte) {
	for i, f := range ar.Files {
		if f.Name == name {
			ar.Files[i].Data = data
			return
		}
	}
	ar.Files = append(ar.Files, txtar.File{Name: name, Data: data})
}

func TestEqual(t *testing.T) {
	limit := []any{"spec", "limits", "cpu"}
	label := []any{"metadata", "labels", "x"}
	after := []any{"spec", "disruption", "consolidateAfter"}
	for name, tc := range map[string]struct {
		why  string
		path []any
		a, b any
		want bool
	}{
		"number and text":    {"a quantity may be written either way", limit, int64(1000), "1000", true},
		"unit":               {"a quantity may have a unit", limit, "1k", int64(1000), true},
		"milli":              {"units are compared by size", limit, "1500m", 1.5, true},
		"other quantity":     {"another amount is another amount", limit, "1000", "1001", false},
		"binary unit":        {"Gi isn't G", []any{"spec", "limits", "memory"}, "1G", "1Gi", false},
		"label":              {"a label's value is text, whatever it looks like", label, "1", "1.0", false},
		"label same":         {"the same text is the same", label, "1", "1", true},
		"duration":           {"an hour is sixty minutes", after, "1h", "60m", true},
		"never":              {"Never is not a duration", after, "Never", "0s", false},
		"int and float":      {"JSON has one kind of number", label, int64(3), 3.0, true},
		"types":              {"text isn't a number elsewhere", []any{"spec", "weight"}, int64(3), "3", false},
		"nested":             {"meanings reach into lists", []any{"spec", "blockDeviceMappings"}, []any{map[string]any{"ebs": map[string]any{"volumeSize": "100Gi"}}}, []any{map[string]any{"ebs": map[string]any{"volumeSize": "102400Mi"}}}, true},
		"null":               {"null is null", label, nil, nil, true},
		"bool":               {"booleans are compared as such", label, true, false, false},
		"order":              {"a list has an order", label, []any{"a", "b"}, []any{"b", "a"}, false},
		"percent":            {"what doesn't parse is compared as text", []any{"spec", "kubelet", "evictionHard", "memory.available"}, "5%", "5%", true},
		"percent other":      {"and differs as text", []any{"spec", "kubelet", "evictionHard", "memory.available"}, "5%", "10%", false},
		"quantity and a map": {"kinds of value are told apart", limit, "1", map[string]any{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := equal(tc.path, tc.a, tc.b); got != tc.want {
				t.Errorf("%s: equal(%v, %v) = %v", tc.why, tc.a, tc.b, got)
			}
			if got := equal(tc.path, tc.b, tc.a); got != tc.want {
				t.Errorf("%s: it isn't symmetric", tc.why)
			}
		})
	}
}

func pool(name string, cpu any) map[string]any {
	return map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"limits": map[string]any{"cpu": cpu, "memory": "1Gi"}, "weight": int64(1)},
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	var objects []Observed
	for i := range 8 {
		name := fmt.Sprint("p", i)
		git, live := pool(name, int64(1)), pool(name, int64(2))
		live["spec"].(map[string]any)["weight"] = int64(5)
		objects = append(objects, Observed{ID: ID{Kind: "NodePool", Name: name}, Git: git, Want: git, Live: live})
	}
	want := Report{Differences: Drift(objects)}.Encode()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		rnd.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
		if got := (Report{Differences: Drift(objects)}).Encode(); !bytes.Equal(got, want) {
			t.Fatalf("another order gives another report:\n%s\n%s", want, got)
		}
	}
}

func TestSummaryIsBounded(t *testing.T) {
	var objects []Observed
	for i := range 300 {
		name := fmt.Sprintf("pool-with-a-long-name-%d", i)
		objects = append(objects, Observed{ID: ID{Kind: "NodePool", Name: name}, Git: pool(name, int64(1)), Want: pool(name, int64(1)), Live: pool(name, int64(2))})
	}
	got := Summary(Drift(objects))
	if len(got) > 260 || !strings.Contains(got, "300 fields of 300 objects") || !strings.Contains(got, "more") {
		t.Errorf("summary has %d bytes: %s", len(got), got)
	}
}

func TestCarry(t *testing.T) {
	early, late := time.Unix(100, 0).UTC(), time.Unix(200, 0).UTC()
	same := Difference{Object: ID{Kind: "NodePool", Name: "a"}, Field: "spec.weight", Git: Value{"1"}, Live: Value{"2"}, Manager: "kubectl-edit", When: early}
	moved := same
	moved.When = late
	other := moved
	other.Live = Value{"3"}
	got := Carry([]Difference{same}, []Difference{moved, other})
	if !got[0].When.Equal(early) {
		t.Errorf("the time of the same difference moved to %v", got[0].When)
	}
	if !got[1].When.Equal(late) {
		t.Errorf("another difference got the time %v", got[1].When)
	}
	if !moved.When.Equal(late) {
		t.Error("the argument was changed")
	}
}

func TestPathString(t *testing.T) {
	for want, path := range map[string][]any{
		"":                                     nil,
		"spec.limits.cpu":                      {"spec", "limits", "cpu"},
		"spec.template.spec.taints[0].key":     {"spec", "template", "spec", "taints", 0, "key"},
		`metadata.labels["example.com/team"]`:  {"metadata", "labels", "example.com/team"},
		`spec.limits["nvidia.com/gpu"]`:        {"spec", "limits", "nvidia.com/gpu"},
		`["a b"].c`:                            {"a b", "c"},
		`spec.x["line\nbreak"][1]`:             {"spec", "x", "line\nbreak", 1},
		`spec.requirements[10].values[2].deep`: {"spec", "requirements", 10, "values", 2, "deep"},
	} {
		if got := PathString(path); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestQuote: whatever a name holds, a report reads back as it, on one line.
func TestQuote(t *testing.T) {
	for _, s := range []string{
		"", "a", "a/b.c", "NodePool/general", "on", "Yes", "null", "true", "1", "1.5", "0x10", "-", "- a", "a: b", "a #b", "#a", "a\nb",
		"[a]", "{a}", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a`", "'a'", "\"a\"", "a\tb", "ä", "\u2028", "a\\b", "spec[0].x", "~", "=", "2026-11-30",
	} {
		line := "x: " + quote(s) + "\n"
		var out map[string]any
		if err := yaml.Unmarshal([]byte(line), &out); err != nil || out["x"] != s || strings.Count(line, "\n") != 1 {
			t.Errorf("%q is written as %s and read as %v, %v", s, line, out["x"], err)
		}
	}
}

func TestOrphaned(t *testing.T) {
	owner := func(manager, operation, fields string) map[string]any {
		var set map[string]any
		if err := json.Unmarshal([]byte(fields), &set); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"manager": manager, "operation": operation, "fieldsV1": set}
	}
	live := func(owners ...any) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "a", "managedFields": owners},
			"spec": map[string]any{
				"limits": map[string]any{"cpu": "1", "memory": "1Gi"}, "weight": int64(3),
				"template": map[string]any{"spec": map[string]any{"taints": []any{map[string]any{"key": "a"}}}},
			},
		}
	}
	git := func(spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "a"}, "spec": spec}
	}
	full := git(map[string]any{
		"limits": map[string]any{"cpu": int64(1), "memory": "1Gi"}, "weight": int64(3),
		"template": map[string]any{"spec": map[string]any{"taints": []any{map[string]any{"key": "a"}}}},
	})
	edited := owner("kubectl-edit", "Update", `{"f:spec":{"f:limits":{"f:cpu":{}}}}`)
	for name, tc := range map[string]struct {
		why  string
		now  map[string]any
		live map[string]any
		want [][]string
	}{
		"kept":    {"what Git goes on to hold is not orphaned", full, live(edited), nil},
		"field":   {"a field that Git drops is", git(map[string]any{"limits": map[string]any{"memory": "1Gi"}, "weight": int64(3), "template": full["spec"].(map[string]any)["template"]}), live(edited), [][]string{{"spec", "limits", "cpu"}}},
		"subtree": {"and so is each field of a map that it drops", git(map[string]any{"weight": int64(3)}), live(edited), [][]string{{"spec", "limits", "cpu"}, {"spec", "limits", "memory"}, {"spec", "template", "spec", "taints"}}},
		"others":  {"but not what another manager applies", git(map[string]any{"weight": int64(3), "template": full["spec"].(map[string]any)["template"]}), live(owner("tool", "Apply", `{"f:spec":{"f:limits":{"f:cpu":{}}}}`)), [][]string{{"spec", "limits", "memory"}}},
		"gone":    {"nor what isn't live", git(nil), map[string]any{"metadata": map[string]any{"name": "a"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Orphaned(full, tc.now, tc.live, "coppice")); diff != "" {
				t.Errorf("%s: %s", tc.why, diff)
			}
		})
	}
}

// TestReleased: a rule protects a field from being taken away as from being set.
func TestReleased(t *testing.T) {
	live := map[string]any{
		"metadata": map[string]any{"managedFields": []any{
			map[string]any{"manager": "coppice", "operation": "Apply", "time": "2026-11-30T10:00:01Z", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:limits": map[string]any{"f:cpu": map[string]any{}}}}},
			map[string]any{"manager": "autoscaler", "operation": "Update", "time": "2026-11-30T10:00:00Z", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:limits": map[string]any{"f:cpu": map[string]any{}}}}},
		}},
		"spec": map[string]any{"limits": map[string]any{"cpu": "7", "memory": "1Gi"}},
	}
	orphans := [][]string{{"spec", "limits", "cpu"}, {"spec", "limits", "memory"}}
	for name, tc := range map[string]struct {
		why     string
		verdict Verdict
		free    [][]string
		failed  string
	}{
		"force": {"Git's", Force, orphans, ""},
		"yield": {"the autoscaler's, and memory is nobody's", Yield, orphans[1:], ""},
		"fail":  {"neither's", Fail, orphans[1:], "1 field of 1 object differs from Git: NodePool/a spec.limits.cpu (by autoscaler)"},
	} {
		judge := func(_ []any, manager string) Verdict {
			if manager == "autoscaler" {
				return tc.verdict
			}
			return Force
		}
		free, failed := Released(Observed{ID: ID{Kind: "NodePool", Name: "a"}, Live: live}, orphans, "coppice", judge)
		if diff := cmp.Diff(tc.free, free); diff != "" {
			t.Errorf("%s: %s: %s", name, tc.why, diff)
		}
		if len(failed) > 0 != (tc.failed != "") || tc.failed != "" && Summary(failed) != tc.failed {
			t.Errorf("%s: %s: %s", name, tc.why, Summary(failed))
		}
	}
	if free, _ := Released(Observed{Live: live}, orphans, "coppice", nil); len(free) != 2 {
		t.Errorf("without rules %v go", free)
	}
}
