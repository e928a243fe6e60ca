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

	"github.com/coppice-dev/coppice/internal/snapshot"
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

// TestPlanAssumes: flags that stand for the controller's win over what it has told, and
// are refused where they mean nothing.
func TestPlanAssumes(t *testing.T) {
	const fleet = "../../examples/single-cluster"
	write := func(told *snapshot.Controller) string {
		t.Helper()
		var text bytes.Buffer
		shot := &snapshot.Snapshot{APIVersion: snapshot.APIVersion, Kind: snapshot.Kind, Controller: told}
		if err := shot.Write(&text); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "snapshot.json")
		writeFile(t, file, text.String())
		return file
	}
	told := &snapshot.Controller{Settings: snapshot.DefaultSettings()}
	told.Settings.ReservedENIs = 1
	silent, knows := write(nil), write(told)
	for name, tc := range map[string]struct {
		why  string
		exit int
		args []string
		says string
	}{
		"nothing":  {"defaults are said to be assumed", ExitOK, []string{"--snapshot", silent}, "isn't known, and is taken to be the defaults"},
		"told":     {"what the controller says counts", ExitOK, []string{"--snapshot", knows}, "are --reserved-enis=1, as the controller says"},
		"one flag": {"the others stay as it says", ExitOK, []string{"--snapshot", knows, "--min-values-policy", "BestEffort"}, "other flags than it does: --min-values-policy=BestEffort --reserved-enis=1"},
		"the same": {"what it does anyway is no other", ExitOK, []string{"--snapshot", knows, "--reserved-enis", "1"}, "are --reserved-enis=1, as the controller says"},
		"silent":   {"a flag for who tells nothing", ExitOK, []string{"--snapshot", silent, "--cluster-limits", "cpu=10,nodes=3"}, "taken to be --cluster-limits=cpu=10,nodes=3"},
		"wrong":    {"as for the controller itself", ExitUsage, []string{"--snapshot", silent, "--preference-policy", "Always"}, "give Priced, Respect or Ignore"},
		"no nodes": {"without a cluster nothing is foretold", ExitUsage, []string{"--preference-policy", "Ignore"}, "give --context"},
		"no file":  {"what isn't there is the user's to name, as DIR is", ExitUsage, []string{"--snapshot", "nosuch.json"}, "there is no file nosuch.json"},
		"no text":  {"and so is what is something else", ExitUsage, []string{"--snapshot", "plan_test.go"}, "plan_test.go is no snapshot"},
		"nowhere":  {"a controller without its cluster", ExitUsage, []string{"--controller", "https://localhost:1"}, "give --context"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := run(t, tc.exit, append([]string{"plan", fleet}, tc.args...)...)
			if !strings.Contains(out+errs, tc.says) {
				t.Errorf("%s: %q is missing:\n%s%s", tc.why, tc.says, out, errs)
			}
		})
	}
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
