package render

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestEachIsRender evaluates clusters together and each by itself: what is said about
// one doesn't depend on its neighbours.
func TestEachIsRender(t *testing.T) {
	fsys := fleet(20)
	add := func(name, text string) { fsys[name] = &fstest.MapFile{Data: []byte(text)} }
	const use = "import \"example.com/fleet/lib\"\n\n"
	for i := range 3 {
		// More than one context holds.
		body := fmt.Sprintf("package many%d\n\nimport \"list\"\n\n%snodeClasses: c: lib.#Class\n", i, use)
		add(fmt.Sprintf("clusters/many%d/c.cue", i), body+fmt.Sprintf("for i in list.Range(0, %d, 1) {nodePools: \"p\\(i)\": lib.#Pool & {#class: \"c\", #team: \"a\"}}\n", maxShared/2))
	}
	add("clusters/a-syntax/c.cue", "package syntax\n\nnodePools: {\n")
	add("clusters/b-import/c.cue", "package b\n\nimport \"example.com/none\"\n\nx: none.x\n")
	add("clusters/c-conflict/c.cue", "package c\n\n"+use+"nodePools: p: lib.#Pool & {#class: \"c\", #team: 5, spec: {weight: 101, wieght: 1}}\n")
	add("clusters/d-embed/c.cue", "@extern(embed)\npackage d\n\nx: _ @embed(file=\"link.json\")\n")
	fsys["clusters/d-embed/link.json"] = &fstest.MapFile{Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}
	add("clusters/e-packages/a.cue", "package a\n")
	add("clusters/e-packages/b.cue", "package b\n")
	add("clusters/z-good/c.cue", "package z\n\n"+use+"nodeClasses: c: lib.#Class\nnodePools: p: lib.#Pool & {#class: \"c\", #team: \"a\"}\n")

	names, err := Clusters(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 10 {
		t.Fatalf("clusters: %v", names)
	}
	for _, alone := range []bool{false, true} {
		begun, done := 0, 0
		var seen []Object
		object := func(o Object) { seen = append(seen, o) }
		Each(fsys, names, alone, Progress{Begun: func() { begun++ }, Object: object, Done: func(r Result) {
			name := names[done]
			done++
			if begun != done {
				t.Errorf("%s is done, but %d were begun", name, begun)
			}
			want, findings := Render(fsys, name)
			if d := cmp.Diff(describe(findings), describe(r.Findings)); d != "" {
				t.Errorf("%s, alone %t: findings (-by itself +with others):\n%s", name, alone, d)
			}
			alike := cmp.AllowUnexported(Object{}, place{})
			if d := cmp.Diff(want, r.Bundle, alike); d != "" {
				t.Errorf("%s, alone %t: bundle (-by itself +with others):\n%s", name, alone, d)
			}
			if d := cmp.Diff(want, NewBundle(name, seen), alike, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s, alone %t: bundle (-at once +one by one):\n%s", name, alone, d)
			}
			seen = nil
			if name == "z-good" {
				if d := cmp.Diff([]string{"clusters/z-good/c.cue", "lib/lib.cue"}, r.Files); d != "" {
					t.Errorf("files:\n%s", d)
				}
			}
		}})
		if done != len(names) {
			t.Errorf("%d of %d clusters done", done, len(names))
		}
	}
}
