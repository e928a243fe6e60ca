package render

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/coppice-dev/coppice/internal/diag"
	"github.com/coppice-dev/coppice/schemas"
	"github.com/coppice-dev/coppice/schemas/admission"
)

// archiveFS turns the files of an archive, other than those below want/, into a tree.
func archiveFS(a *txtar.Archive) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, f := range a.Files {
		if !strings.HasPrefix(f.Name, "want/") {
			fsys[f.Name] = &fstest.MapFile{Data: f.Data}
		}
	}
	return fsys
}

// golden compares got with the file of that name in the archive, or writes it
// with UPDATE=1.
func golden(t *testing.T, a *txtar.Archive, path, name, got string) {
	t.Helper()
	for i, f := range a.Files {
		if f.Name != name {
			continue
		}
		if os.Getenv("UPDATE") == "" {
			if d := cmp.Diff(string(f.Data), got); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
			return
		}
		if !bytes.Equal(f.Data, []byte(got)) {
			a.Files[i].Data = []byte(got)
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	t.Errorf("%s has no section %s", path, name)
}

func describe(l diag.List) string {
	var b strings.Builder
	for _, f := range l {
		fmt.Fprintf(&b, "%s: %s %s", f.Pos, f.Severity, f.Code)
		if f.Object != "" {
			fmt.Fprintf(&b, " %s", f.Object)
		}
		if f.Path != "" {
			fmt.Fprintf(&b, " %s", f.Path)
		}
		fmt.Fprintf(&b, ": %s\n", f.Message)
		if f.Help != "" {
			fmt.Fprintf(&b, "\thelp: %s\n", f.Help)
		}
		for _, r := range f.Related {
			at := r.Pos
			if strings.HasPrefix(at.File, SchemaModule) {
				// The lines of the schemas move with their documentation.
				at.Line, at.Col = 0, 0
			}
			fmt.Fprintf(&b, "\t%s: %s\n", at, r.Message)
		}
	}
	return b.String()
}

// TestTrees renders every archive of testdata/trees. The first line of an
// archive's comment may name the cluster to render, as in "cluster: prod".
func TestTrees(t *testing.T) {
	paths, err := filepath.Glob("testdata/trees/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	judge := newJudge(t)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(a.Comment), "\n")
			cluster, _ := strings.CutPrefix(first, "cluster: ")
			if cluster == first {
				cluster = ""
			}
			bundle, findings := Check(archiveFS(a), cluster, judge)
			golden(t, a, path, "want/diag", describe(findings))
			if findings.HasErrors() {
				return
			}
			text, err := bundle.YAML()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, a, path, "want/objects", string(text))
		})
	}
}

func newJudge(t testing.TB) *admission.Judge {
	t.Helper()
	j, err := admission.New(schemas.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestManifests vets every archive of testdata/manifests: its file in.yaml.
func TestManifests(t *testing.T) {
	paths, err := filepath.Glob("testdata/manifests/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	judge := newJudge(t)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := fs.ReadFile(archiveFS(a), "in.yaml")
			if err != nil {
				t.Fatal(err)
			}
			bundle, findings := Manifest("in.yaml", text)
			golden(t, a, path, "want/diag", describe(Merge(findings, Validate(bundle, judge))))
		})
	}
}
