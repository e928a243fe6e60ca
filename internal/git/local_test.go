package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// newClone makes a clone with one commit for each set of files.
func newClone(t *testing.T, commits ...map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	repo, err := gogit.PlainInit(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := repo.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	for i, files := range commits {
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := tree.Add(name); err != nil {
				t.Fatal(err)
			}
		}
		who := &object.Signature{Name: "Ada", Email: "ada@example.com", When: time.Unix(int64(i), 0)}
		if _, err := tree.Commit("change", &gogit.CommitOptions{Author: who}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLocal(t *testing.T) {
	dir := newClone(t, map[string]string{"fleet/a.cue": "a: 1\n", "b.txt": "x"}, map[string]string{"fleet/a.cue": "a: 2\n"})
	l, err := Open(filepath.Join(dir, "fleet"))
	if err != nil {
		t.Fatal(err)
	}
	if l.Path != "fleet" {
		t.Errorf("the folder lies at %q in its clone", l.Path)
	}
	for name, want := range map[string]string{"HEAD": "a: 2\n", "HEAD~1": "a: 1\n", "master": "a: 2\n"} {
		c, err := l.Commit(name)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := c.FS(l.Path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := fs.ReadFile(tree, "a.cue")
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, want %q (%v)", name, got, want, err)
		}
		edited, err := Edited(os.DirFS(filepath.Join(dir, "fleet")), tree, isCUE)
		if err != nil || edited != map[bool]string{true: "a.cue"}[want != "a: 2\n"] {
			t.Errorf("the folder differs from %s in %q (%v)", name, edited, err)
		}
		again, err := l.Commit(c.Revision.Hash[:10])
		if err != nil || again.Revision.Hash != c.Revision.Hash {
			t.Errorf("the hash's beginning stands for another commit (%v)", err)
		}
	}
	if _, err := l.Commit("nowhere"); err == nil {
		t.Error("a commit was found that isn't there")
	}
	if err := os.WriteFile(filepath.Join(dir, "fleet/new.cue"), []byte("b: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	head, err := l.Commit("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := head.FS("fleet")
	if err != nil {
		t.Fatal(err)
	}
	if edited, err := Edited(os.DirFS(filepath.Join(dir, "fleet")), tree, isCUE); err != nil || edited != "new.cue" {
		t.Errorf("a file that isn't committed wasn't seen: %q (%v)", edited, err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNoClone) {
		t.Errorf("a folder outside of any clone: %v", err)
	}
}

func isCUE(name string) bool { return filepath.Ext(name) == ".cue" }
