package coppice_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/coppice-dev/coppice/"

// tiers orders the folders: a package imports only from tiers below its own, or
// along an edge of sideways.
var tiers = [][]string{
	{"internal/diag", "internal/pack", "internal/catalogue", "internal/record", "internal/githubapp", "internal/install", "schemas"},
	{"render", "policies", "internal/plan", "internal/consolidate"},
	{"internal/git", "internal/kube", "internal/cloud", "internal/cluster", "internal/forge", "internal/isolate", "internal/snapshot", "internal/explain", "internal/adopt"},
	{"reconcile"},
	{"internal/cli"},
	{"cmd/coppice"},
}

// sideways are imports inside a tier, with the reason for each.
var sideways = map[[2]string]string{
	{"schemas", "schemas"}:                    "the API's groups share one folder",
	{"render", "render"}:                      "one compiler",
	{"internal/plan", "render"}:               "a plan compares what was rendered",
	{"policies", "render"}:                    "rules judge what was rendered",
	{"internal/cloud", "internal/cloud"}:      "the interface and what stands behind it",
	{"internal/cluster", "internal/cloud"}:    "a node's price and size are the cloud's values",
	{"internal/isolate", "internal/isolate"}:  "one parent, one child",
	{"internal/explain", "internal/snapshot"}: "an answer is out of a picture",
	{"internal/snapshot", "internal/cluster"}: "a picture keeps what the controller's cache keeps",
	{"internal/snapshot", "internal/cloud"}:   "a picture keeps what the controller knows of prices",
	{"internal/git", "internal/git"}:          "one client",
	{"reconcile", "reconcile"}:                "reconcile.go wires the controllers",
	{"internal/cli", "internal/cli"}:          "one command tree",
}

type listed struct {
	ImportPath, Dir string
	Imports, Deps   []string
	GoFiles         []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Dir,Imports,Deps,GoFiles", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// place returns the tier and folder of an import path of ours.
func place(path string) (tier int, folder string, ok bool) {
	rel, ours := strings.CutPrefix(path, module)
	if !ours {
		return 0, "", false
	}
	for i, tier := range tiers {
		for _, folder := range tier {
			if rel == folder || strings.HasPrefix(rel, folder+"/") {
				return i, folder, true
			}
		}
	}
	return 0, "", false
}

func TestImportsGoDown(t *testing.T) {
	seen := map[[2]string]bool{}
	for _, p := range packages(t) {
		from, folder, ok := place(p.ImportPath)
		if !ok {
			continue
		}
		for _, imp := range p.Imports {
			to, target, ours := place(imp)
			if !ours {
				if strings.HasPrefix(imp, module) {
					t.Errorf("%s imports %s, which only tests and the sandbox may", p.ImportPath, imp)
				}
				continue
			}
			edge := [2]string{folder, target}
			seen[edge] = true
			if to < from || sideways[edge] != "" {
				continue
			}
			t.Errorf("%s imports %s: imports go down, from %s to lower tiers only", p.ImportPath, imp, folder)
		}
	}
	if len(seen) < 5 {
		t.Fatalf("only %d edges seen; the listing is broken", len(seen))
	}
}

func TestCoresUseStandardLibraryAlone(t *testing.T) {
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		if rel != "internal/pack" && rel != "internal/diag" && rel != "internal/catalogue" {
			continue
		}
		for _, dep := range p.Deps {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(dep, module+rel) {
				t.Errorf("%s depends on %s", rel, dep)
			}
		}
	}
}

func TestSchemasStayFreeOfControllers(t *testing.T) {
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.ImportPath, module+"schemas") {
			continue
		}
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime") {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
			}
		}
	}
}

func TestTreeStaysLegible(t *testing.T) {
	const maxLines, maxDepth = 600, 3
	banned := []string{"utils", "util", "common", "shared", "types", "helpers", "misc"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		if d.IsDir() {
			if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return fs.SkipDir
			}
			if slices.Contains(banned, d.Name()) {
				t.Errorf("%s: the name says nothing about what is in it", path)
			}
			if path != "." && strings.Count(path, "/") >= maxDepth {
				t.Errorf("%s lies deeper than %d folders", path, maxDepth)
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasPrefix(d.Name(), "zz_generated") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: split it by meaning", path, n, maxLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
