package convert

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/render"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

// rendered evaluates what was written as CUE, and returns what is wrong with it. A class
// may stand in a file of its own.
func rendered(t *testing.T, text []byte, j *admission.Judge) (render.Bundle, diag.List) {
	t.Helper()
	b, found := render.Check(fstest.MapFS{"a.cue": {Data: text}}, "", j)
	return b, slices.DeleteFunc(found, func(f diag.Finding) bool {
		return f.Severity != diag.Error || f.Code == render.CodeReference
	})
}

func judge(t testing.TB) *admission.Judge {
	t.Helper()
	j, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// given is what the sources of tests don't say.
func given() Options { return Options{Role: "node", Discovery: "prod", AMIAlias: "al2023@v20260101"} }

// TestGuides imports the manifests of two guides, which are in no repository: each must
// give objects that an API server takes, a part, or a refusal that is expected.
func TestGuides(t *testing.T) {
	files, err := filepath.Glob("../../../shared/seeds/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Skip("the manifests aren't here")
	}
	refused := map[string]string{
		"02": render.CodeYAMLDuplicate, "08": CodeLossy, "19": CodeLossy, "27": CodeLossy,
	}
	j := judge(t)
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		result, found := Convert([]Source{{name, text}}, given())
		code := ""
		for _, f := range found {
			if f.Severity == diag.Error {
				code = f.Code
			}
			if !f.Pos.IsValid() || f.Pos.Line == 0 {
				t.Errorf("%s: a finding without a place: %+v", name, f)
			}
		}
		if code != refused[name[:2]] {
			t.Errorf("%s: refused with %q, want %q: %v", name, code, refused[name[:2]], found)
		}
		if code == render.CodeYAMLDuplicate {
			continue
		}
		if code != "" {
			lossy := given()
			lossy.AllowLossy = true
			if result, found = Convert([]Source{{name, text}}, lossy); found.HasErrors() {
				t.Errorf("%s: refused though it may be lossy: %v", name, found)
			}
		}
		out, err := result.CUE()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if result.Objects() == 0 {
			if len(out) == 0 && len(found) == 0 {
				t.Errorf("%s: came to nothing, without a word", name)
			}
			continue
		}
		if b, wrong := rendered(t, out, j); len(wrong) > 0 || len(b.Objects) != result.Objects() {
			t.Errorf("%s: %d objects, %v\n%s", name, len(b.Objects), wrong, out)
		}
	}
}

// TestShared has pools that repeat each other: what they have in common is written once,
// and each pool still is what it was.
func TestShared(t *testing.T) {
	var text strings.Builder
	for _, arch := range []string{"amd64", "arm64"} {
		text.WriteString("---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: " + arch + ", labels: {team: a}}\nspec:\n  limits: {cpu: 100}\n  template:\n    spec:\n" +
			"      expireAfter: 720h\n      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}\n      requirements: [{key: kubernetes.io/arch, operator: In, values: [" + arch + "]}]\n")
	}
	result, found := Convert([]Source{{"pools.yaml", []byte(text.String())}}, Options{})
	if len(found) != 1 || found[0].Code != CodeMissing || found[0].Severity != diag.Warning || found[0].Pos.Line != 10 {
		t.Errorf("not one finding about the class that is kept elsewhere: %v", found)
	}
	out, err := result.CUE()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(out), "nodeClassRef"); n != 1 {
		t.Errorf("nodeClassRef is written %d times:\n%s", n, out)
	}
	b, wrong := rendered(t, out, judge(t))
	want, _ := render.Manifest("pools.yaml", []byte(text.String()))
	if len(wrong) > 0 {
		t.Fatalf("%v\n%s", wrong, out)
	}
	for i, o := range b.Objects {
		if diff := cmp.Diff(want.Objects[i].Value, o.Value); diff != "" {
			t.Errorf("%s changed:\n%s", o.ID(), diff)
		}
	}
}

// FuzzFixedPoint imports something, renders it and imports that: the CUE must be the same,
// without anything to note.
func FuzzFixedPoint(f *testing.F) {
	seeds, err := filepath.Glob("testdata/seeds/*")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range seeds {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	o := given()
	o.AllowLossy = true
	f.Fuzz(func(t *testing.T, text string) {
		first, found := Convert([]Source{{"a.yaml", []byte(text)}}, o)
		if found.HasErrors() || first.Objects() == 0 {
			t.Skip("there is nothing in it to import")
		}
		one, err := first.CUE()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		b, found := render.Render(fstest.MapFS{"a.cue": {Data: one}}, "")
		for _, f := range found {
			switch f.Code {
			case render.CodeSyntax, render.CodeConflict, render.CodeImport, render.CodeIncomplete:
				t.Fatalf("%s: %s\n%s", f.Code, f.Message, one)
			}
			if f.Severity == diag.Error && f.Code != render.CodeReference {
				t.Skip() // The schema refuses what was imported, and would have refused it as YAML.
			}
		}
		yaml, err := b.YAML()
		if err != nil {
			t.Fatal(err)
		}
		// Parts of objects aren't rendered.
		first.parts, first.settings = nil, nil
		if one, err = first.CUE(); err != nil {
			t.Fatal(err)
		}
		second, found := Convert([]Source{{"b.yaml", yaml}}, Options{})
		if len(found) > 0 {
			t.Fatalf("the second import notes %v\n%s", found, yaml)
		}
		two, err := second.CUE()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(one), string(two)); diff != "" {
			t.Fatalf("not a fixed point:\n%s", diff)
		}
	})
}

// TestManyPools imports pools with all kinds of text in all places that take text, and
// wants them back as they were.
func TestManyPools(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	odd := []string{"plain", "with \"quotes\"", `back\slash \(not: an interpolation)`, "two\nlines", "ends in a line\n", "\n", "tab\there", "ümläut ☃", "true", "null", "0123", "1e3", "-", "#comment", "a: b", "", "\"\"\"", "#\"", "trailing space ", " leading", "if", "for", "_hidden", "#def", "in", "import", "a-b", "a.b/c", "$x", "__y", "9lives"}
	text := func() string { return odd[r.IntN(len(odd))] }
	var objects []any
	want := map[string]map[string]any{}
	for i := range 120 {
		annotations := map[string]any{}
		for range r.IntN(4) {
			annotations[text()] = text()
		}
		spec := map[string]any{"template": map[string]any{
			"metadata": map[string]any{"annotations": annotations},
			"spec":     map[string]any{"requirements": []any{}, "nodeClassRef": map[string]any{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
		}}
		if r.IntN(2) == 0 {
			spec["weight"] = int64(1 + r.IntN(100))
		}
		if r.IntN(2) == 0 {
			spec["limits"] = map[string]any{"cpu": []any{int64(5), "5", 2.5}[r.IntN(3)], "nvidia.com/gpu": int64(1)}
		}
		name := "pool-" + strconv.Itoa(i)
		v := map[string]any{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": name}, "spec": spec}
		objects = append(objects, v)
		want[name] = v
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	result, found := Convert([]Source{{"a.json", list}}, Options{})
	if len(found) != 1 || found[0].Code != CodeMissing {
		t.Fatalf("%v", found)
	}
	out, err := result.CUE()
	if err != nil {
		t.Fatal(err)
	}
	b, found := render.Render(fstest.MapFS{"a.cue": {Data: out}}, "")
	if len(b.Objects) != len(want) {
		t.Fatalf("%d objects, %v\n%s", len(b.Objects), found, out)
	}
	for _, o := range b.Objects {
		if diff := cmp.Diff(want[o.Name], o.Value); diff != "" {
			t.Errorf("%s: %s", o.ID(), diff)
		}
	}
}

// TestUntypedProvisioner wants what the old webhook filled in, but only in pools that say
// nothing about instance types themselves.
func TestUntypedProvisioner(t *testing.T) {
	const arch = "{key: kubernetes.io/arch, operator: In, values: [arm64]}"
	for name, c := range map[string]struct {
		why, requirements string
		defaults          []string
	}{
		"untyped":    {"other requirements don't count", arch, []string{"karpenter.k8s.aws/instance-category In [c m r]", "karpenter.k8s.aws/instance-generation Gt [2]"}},
		"type":       {"types are named", arch + ", {key: node.kubernetes.io/instance-type, operator: In, values: [t3.large]}", nil},
		"oldName":    {"types are named as they once were", "{key: beta.kubernetes.io/instance-type, operator: In, values: [t3.large]}", nil},
		"generation": {"one is enough", "{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ['1']}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			result, found := Convert([]Source{{"a.yaml", []byte("apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\nspec: {requirements: [" + c.requirements + "]}\n")}}, given())
			out, err := result.CUE()
			if err != nil || found.HasErrors() {
				t.Fatal(err, found)
			}
			b, wrong := rendered(t, out, judge(t))
			if len(wrong) > 0 || len(b.Objects) == 0 {
				t.Fatalf("%v\n%s", wrong, out)
			}
			spec := b.Objects[0].Value["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			var got []string
			for _, r := range spec["requirements"].([]any) {
				r := r.(map[string]any)
				if key := r["key"].(string); strings.HasPrefix(key, "karpenter.k8s.aws/") && !strings.Contains(c.requirements, key) {
					got = append(got, fmt.Sprint(key, " ", r["operator"], " ", r["values"]))
				}
			}
			if diff := cmp.Diff(c.defaults, got); diff != "" {
				t.Errorf("%s:\n%s", c.why, diff)
			}
			noted := 0
			for _, f := range found {
				if f.Code == CodeDefault && f.Severity == diag.Warning && strings.Contains(f.Message, "names no instance types") {
					noted++
				}
			}
			if noted != len(c.defaults) {
				t.Errorf("%d of %d defaults are noted", noted, len(c.defaults))
			}
		})
	}
}
