package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// run runs a command.
func run(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Main(args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != want {
		t.Fatalf("coppice %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// TestPlanAgainstCommit: what isn't committed is planned against a commit, of a tree
// that is a folder of its clone.
func TestPlanAgainstCommit(t *testing.T) {
	dir := t.TempDir()
	repo, err := gogit.PlainInit(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	work, err := repo.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	fleet := filepath.Join(dir, "nodes")
	if err := os.CopyFS(fleet, os.DirFS("../../examples/single-cluster")); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Add("nodes"); err != nil {
		t.Fatal(err)
	}
	hash, err := work.Commit("declare", &gogit.CommitOptions{Author: &object.Signature{Name: "Ada", Email: "ada@example.com", When: time.Unix(0, 0)}})
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := run(t, ExitOK, "plan", fleet, "--against", "HEAD", "--exit-code"); !strings.Contains(out, "Nothing changes") || !strings.Contains(out, hash.String()[:12]) {
		t.Errorf("nothing was edited:\n%s", out)
	}
	file := filepath.Join(fleet, "nodepools.cue")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(text), "cpu:    1000", "cpu:    500", 1)
	if edited == string(text) {
		t.Fatal("the example's limit isn't where this test edits it")
	}
	if err := os.WriteFile(file, []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := run(t, ExitChanges, "plan", fleet, "--against", "HEAD", "--exit-code")
	for _, want := range []string{"and what isn't committed", "~ NodePool/default", "spec.limits.cpu: 1000 → 500", "1 unchanged"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	if _, errs := run(t, ExitUsage, "plan", fleet, "--against", "nowhere"); !strings.Contains(errs, "nowhere") {
		t.Errorf("an unknown commit: %s", errs)
	}
}
