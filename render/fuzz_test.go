package render

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// FuzzManifest reads anything as YAML: whatever comes, there is no panic, and
// every finding stands inside of the text.
func FuzzManifest(f *testing.F) {
	paths, err := filepath.Glob("testdata/manifests/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			if file.Name == "in.yaml" {
				f.Add(file.Data)
			}
		}
	}
	text, err := os.ReadFile("../schemas/crds/nodepools.karpenter.sh.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Add([]byte("a: &a [<<: *a, *a]\n"))
	f.Add([]byte("apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: x}\n<<: {spec: {a: 1}}\n? [b]\n: 1\n"))
	f.Add([]byte("--- |\n x\n--- !!binary aGk=\n...\n%YAML 1.1\n---\n{a: 1e999, b: .inf, c: 0o7, d: 99999999999999999999}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			return
		}
		objects, findings := readYAML("in.yaml", text, false)
		lines := 1
		for _, c := range text {
			if c == '\n' {
				lines++
			}
		}
		for _, x := range findings {
			if x.Pos.File != "in.yaml" || x.Pos.Line < 1 || x.Pos.Line > lines || x.Pos.Col < 1 || x.Message == "" {
				t.Errorf("finding at %s of %d lines: %q", x.Pos, lines, x.Message)
			}
		}
		for _, o := range objects {
			for key, at := range o.places {
				for _, p := range []int{at.key.Line, at.value.Line} {
					if p > lines {
						t.Errorf("%q stands at %v", key, at)
					}
				}
			}
		}
	})
}
