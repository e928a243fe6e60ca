package adopt

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/internal/plan"
	"github.com/coppice-dev/coppice/render"
)

func evaluate(_ context.Context, tree fs.FS, cluster string) (render.Bundle, diag.List, error) {
	bundle, findings := render.Render(tree, cluster)
	return bundle, findings, nil
}

const head = `package cluster

import karpenter "coppice.dev/schemas/karpenter/v1"

nodePools: [string]: karpenter.#NodePool
`

// body is what makes a pool complete.
const body = `template: spec: {
		nodeClassRef: {group: "example.com", kind: "NodeClass", name: "x"}
		requirements: [
			// Graviton is cheaper.
			{key: "kubernetes.io/arch", operator: "In", values: ["arm64"]},
			{key: "karpenter.sh/capacity-type", operator: "In", values: ["spot", "on-demand"]},
		]
	}`

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{"cue.mod/module.cue": {Data: []byte("module: \"example.com/fleet@v0\"\nlanguage: version: \"v0.17.0\"\n")}}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// changes compares a cluster's objects with their live state as edits make it.
func changes(t *testing.T, tree fs.FS, cluster string, edits map[string]func(spec map[string]any)) []Change {
	t.Helper()
	bundle, findings := render.Render(tree, cluster)
	if findings.HasErrors() {
		t.Fatal(findings)
	}
	var out []Change
	for _, o := range bundle.Objects {
		f, ok := edits[o.ID()]
		if !ok {
			continue
		}
		live := clone(o.Value).(map[string]any)
		f(live["spec"].(map[string]any))
		for _, c := range plan.FieldChanges(plan.Observed{Git: o.Value, Want: o.Value, Live: live}) {
			out = append(out, Change{Cluster: bundle.Cluster, Object: o, FieldChange: c})
		}
	}
	return out
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

func limit(resource string, v any) func(map[string]any) {
	return func(spec map[string]any) {
		if v == nil {
			delete(spec["limits"].(map[string]any), resource)
			return
		}
		spec["limits"].(map[string]any)[resource] = v
	}
}

func TestAdopt(t *testing.T) {
	requirements := func(spec map[string]any) []any {
		return spec["template"].(map[string]any)["spec"].(map[string]any)["requirements"].([]any)
	}
	for name, tc := range map[string]struct {
		why  string
		text string
		edit func(map[string]any)
		// from and to are the only lines that change; refused is what is said instead.
		from, to, refused string
	}{
		"number": {
			"a number stays a number, and its comment stays",
			"nodePools: a: spec: {\n\tlimits: cpu: 100 // agreed with finance\n\t" + body + "\n}\n",
			limit("cpu", "300"), "\tlimits: cpu: 100 // agreed with finance", "\tlimits: cpu: 300 // agreed with finance", "",
		},
		"quantity": {
			"what is no number becomes text",
			"nodePools: a: spec: {\n\tlimits: {cpu: 100, memory: \"1Ti\"}\n\t" + body + "\n}\n",
			limit("cpu", "1500m"), "\tlimits: {cpu: 100, memory: \"1Ti\"}", "\tlimits: {cpu: \"1500m\", memory: \"1Ti\"}", "",
		},
		"removed line": {
			"a field that is gone takes its line and its own comment with it",
			"nodePools: a: spec: {\n\tlimits: {\n\t\tmemory: \"1Ti\"\n\t\t// Four racks.\n\t\tcpu: 100\n\t}\n\t" + body + "\n}\n",
			limit("cpu", nil), "\t\t// Four racks.\n\t\tcpu: 100\n", "", "",
		},
		"removed inline": {
			"a field on a line of others takes its comma",
			"nodePools: a: spec: {\n\tlimits: {cpu: 100, memory: \"1Ti\"}\n\t" + body + "\n}\n",
			limit("cpu", nil), "{cpu: 100, memory", "{memory", "",
		},
		"removed last": {
			"the last of a line takes the comma before it",
			"nodePools: a: spec: {\n\tlimits: {cpu: 100, memory: \"1Ti\"}\n\t" + body + "\n}\n",
			limit("memory", nil), "{cpu: 100, memory: \"1Ti\"}", "{cpu: 100}", "",
		},
		"removed chain": {
			"a chain that states one field goes as a whole",
			"nodePools: a: spec: {\n\tweight: 3\n\tlimits: cpu: 100\n\t" + body + "\n}\n",
			limit("cpu", nil), "\tlimits: cpu: 100\n", "", "",
		},
		"element": {
			"a value in a list is edited in its place",
			"nodePools: a: spec: {\n\t" + body + "\n}\n",
			func(spec map[string]any) { requirements(spec)[0].(map[string]any)["values"] = []any{"amd64"} },
			`values: ["arm64"]`, `values: ["amd64"]`, "",
		},
		"longer list": {
			"a list of another length is written anew",
			"nodePools: a: spec: {\n\t" + body + "\n}\n",
			func(spec map[string]any) { requirements(spec)[1].(map[string]any)["values"] = []any{"on-demand"} },
			`values: ["spot", "on-demand"]`, `values: ["on-demand"]`, "",
		},
		"comments in the way": {
			"a list isn't written anew over somebody's comments",
			"nodePools: a: spec: {\n\t" + body + "\n}\n",
			func(spec map[string]any) {
				spec["template"].(map[string]any)["spec"].(map[string]any)["requirements"] = requirements(spec)[:1]
			}, "", "", "there are comments in the list",
		},
		"expression": {
			"a sum has no one text to edit",
			"nodePools: a: spec: {\n\tlimits: cpu: 50 * 2\n\t" + body + "\n}\n",
			limit("cpu", "300"), "", "", "it is an expression",
		},
		"default": {
			"a default is a choice that somebody offers",
			"nodePools: a: spec: {\n\tlimits: cpu: *100 | int\n\t" + body + "\n}\n",
			limit("cpu", "300"), "", "", "it is an expression",
		},
		"shared": {
			"two pools have the limit of one definition",
			"#small: {limits: cpu: 100, ...}\nnodePools: a: spec: #small & {\n\t" + body + "\n}\nnodePools: b: spec: #small & {\n\t" + body + "\n}\n",
			limit("cpu", "300"), "", "", "the text is shared: NodePool/b spec.limits.cpu",
		},
		"not shared": {
			"a definition that only one pool uses is that pool's",
			"#small: {limits: cpu: 100, ...}\nnodePools: a: spec: #small & {\n\t" + body + "\n}\n",
			limit("cpu", "300"), "#small: {limits: cpu: 100,", "#small: {limits: cpu: 300,", "",
		},
		"credential": {
			"what looks like one isn't written to Git",
			"nodePools: a: spec: {\n\ttemplate: metadata: annotations: hook: \"none\"\n\t" + body + "\n}\n",
			func(spec map[string]any) {
				spec["template"].(map[string]any)["metadata"].(map[string]any)["annotations"].(map[string]any)["hook"] = "https://ci:hunter2@example.com/"
			}, "", "", "it looks like a credential",
		},
		"comprehension": {
			"what a loop makes has no text of its own",
			"for n in [\"a\"] {\n\tnodePools: (n): spec: {\n\t\tlimits: cpu: 100\n\t\t" + body + "\n\t}\n}\n",
			limit("cpu", "300"), "", "", "comprehension",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := tree(map[string]string{"pools.cue": head + "\n" + tc.text})
			before := head + "\n" + tc.text
			out, err := Adopt(t.Context(), fsys, []string{""}, changes(t, fsys, "", map[string]func(map[string]any){"NodePool/a": tc.edit}), evaluate)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			if tc.refused == "" {
				if strings.Count(before, tc.from) != 1 {
					t.Fatalf("%q isn't once in the tree", tc.from)
				}
				want["pools.cue"] = strings.Replace(before, tc.from, tc.to, 1)
			}
			got := map[string]string{}
			for file, text := range out.Files {
				got[file] = string(text)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if (tc.refused != "") != (len(out.Refused) == 1) || tc.refused != "" && !strings.Contains(out.Refused[0].Message, tc.refused) {
				t.Errorf("refused %v, want %q", out.Refused, tc.refused)
			}
			if len(out.Refused) > 0 && out.Refused[0].Pos.File != "pools.cue" {
				t.Errorf("refused at %v", out.Refused[0].Pos)
			}
		})
	}
}

// TestClusters: a definition that another cluster uses isn't edited for one.
func TestClusters(t *testing.T) {
	fsys := tree(map[string]string{
		"pools/general.cue":     "package pools\n\n#General: {limits: cpu: 100, ...}\n",
		"clusters/one/pool.cue": strings.Replace(head, "import ", "import (\n\t\"example.com/fleet/pools\"\n)\nimport ", 1) + "\nnodePools: a: spec: pools.#General & {\n\tweight: 1\n\t" + body + "\n}\n",
		"clusters/two/pool.cue": strings.Replace(head, "import ", "import (\n\t\"example.com/fleet/pools\"\n)\nimport ", 1) + "\nnodePools: a: spec: pools.#General & {\n\t" + body + "\n}\n",
	})
	out, err := Adopt(t.Context(), fsys, []string{"one", "two"}, changes(t, fsys, "one", map[string]func(map[string]any){"NodePool/a": func(spec map[string]any) {
		spec["limits"].(map[string]any)["cpu"] = "300"
		spec["weight"] = int64(7)
	}}), evaluate)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Refused) != 1 || !strings.Contains(out.Refused[0].Message, "NodePool/a spec.limits.cpu of cluster two would change too") {
		t.Errorf("refused %v", out.Refused)
	}
	if got := slices.Sorted(maps.Keys(out.Files)); len(got) != 1 || got[0] != "clusters/one/pool.cue" || !strings.Contains(string(out.Files[got[0]]), "weight: 7") {
		t.Errorf("files %v", got)
	}
}

// TestProperty: whatever is adopted, rendering the edited tree gives the live
// values for what is done, and adopting again finds what was refused alone.
func TestProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	done := 0
	for range rounds {
		var b strings.Builder
		b.WriteString(head)
		b.WriteString("\n#shared: cpu: 64\n")
		for i := range 4 {
			fmt.Fprintf(&b, "\nnodePools: p%d: spec: {\n", i)
			switch rng.IntN(5) {
			case 0:
				b.WriteString("\tlimits: cpu: 100\n")
			case 1:
				b.WriteString("\tlimits: {\n\t\tcpu: 100 // x\n\t\tmemory: \"1Ti\"\n\t}\n")
			case 2:
				b.WriteString("\tlimits: #shared\n")
			case 3:
				b.WriteString("\tlimits: cpu: 10 * 3\n")
			case 4:
				b.WriteString("\tlimits: {cpu: \"100\", memory: \"1Ti\"}\n")
			}
			if rng.IntN(2) == 0 {
				b.WriteString("\tdisruption: {consolidateAfter: \"30s\", budgets: [{nodes: \"10%\"}]}\n")
			}
			b.WriteString("\t" + body + "\n}\n")
		}
		fsys := tree(map[string]string{"pools.cue": b.String()})
		edits := map[string]func(map[string]any){}
		for i := range 4 {
			kind := rng.IntN(5)
			amount := fmt.Sprint(rng.IntN(1000) + 1000)
			edits[fmt.Sprintf("NodePool/p%d", i)] = func(spec map[string]any) {
				switch kind {
				case 0:
				case 1:
					delete(spec["limits"].(map[string]any), "cpu")
				case 2:
					if d, ok := spec["disruption"].(map[string]any); ok {
						d["budgets"] = []any{map[string]any{"nodes": "5"}, map[string]any{"nodes": "0", "reasons": []any{"Drifted"}}}
						d["consolidateAfter"] = "Never"
					}
				default:
					spec["limits"].(map[string]any)["cpu"] = amount
				}
			}
		}
		todo := changes(t, fsys, "", edits)
		out, err := Adopt(t.Context(), fsys, []string{""}, todo, evaluate)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Done)+len(out.Refused) != len(todo) {
			t.Fatalf("%d done and %d refused of %d\n%s", len(out.Done), len(out.Refused), len(todo), b.String())
		}
		for name, text := range out.Files {
			fsys[name] = &fstest.MapFile{Data: text}
		}
		bundle, findings := render.Render(fsys, "")
		if findings.HasErrors() {
			t.Fatalf("%v\n%s", findings, fsys["pools.cue"].Data)
		}
		for _, c := range out.Done {
			done++
			o, _ := bundle.Find("NodePool", c.Object.Name)
			got, there := plan.ValueAt(o.Value, c.Path)
			if there != (c.Live != nil) || there && !plan.Same(c.Path, got, c.Live) {
				t.Errorf("%s is %v, live %v\n%s", c.name(), got, c.Live, fsys["pools.cue"].Data)
			}
		}
	}
	if done < rounds/2 {
		t.Errorf("only %d values were adopted", done)
	}
}
