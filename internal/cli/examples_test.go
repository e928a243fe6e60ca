package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/kube"
	"github.com/coppice-dev/coppice/internal/testkit"
	"github.com/coppice-dev/coppice/render"
)

const examples = "../../examples"

// installed puts this program into a folder as coppice and returns an environment with
// that folder on its path.
func installed(t *testing.T, more ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "coppice")); err != nil {
		t.Fatal(err)
	}
	return append([]string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir, "NO_COLOR=1", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=ci", "GIT_AUTHOR_EMAIL=ci@example.com", "GIT_COMMITTER_NAME=ci", "GIT_COMMITTER_EMAIL=ci@example.com"}, more...)
}

func command(t *testing.T, env []string, dir, name string, args ...string) (stdout string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s: %v", name, err)
	}
	if cmd.ProcessState.ExitCode() != 0 {
		t.Logf("%s %v: %s", name, args, &errs)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// plugin is the part of Argo CD's ConfigManagementPlugin that says what to run.
type plugin struct {
	Spec struct {
		Init, Generate struct {
			Command, Args []string
		}
	}
}

// readPlugin reads the plugin of the example as the sidecar does.
func readPlugin(t *testing.T) plugin {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "argocd/plugin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var outer struct{ Data map[string]string }
	var p plugin
	if err := yaml.Unmarshal(text, &outer); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(outer.Data["plugin.yaml"]), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p plugin) run(t *testing.T, env []string, dir string) (string, int) {
	t.Helper()
	if out, code := command(t, env, dir, p.Spec.Init.Command[0], append(p.Spec.Init.Command[1:], p.Spec.Init.Args...)...); code != 0 || out != "" {
		return out, code
	}
	return command(t, env, dir, p.Spec.Generate.Command[0], append(p.Spec.Generate.Command[1:], p.Spec.Generate.Args...)...)
}

// TestArgoPlugin runs the commands of the plugin as Argo CD does.
func TestArgoPlugin(t *testing.T) {
	p := readPlugin(t)
	env := installed(t)
	first, code := p.run(t, env, filepath.Join(examples, "single-cluster"))
	second, _ := p.run(t, env, filepath.Join(examples, "single-cluster"))
	if code != 0 || !strings.Contains(first, "kind: NodePool") || first != second {
		t.Errorf("exit %d, %d bytes, then %d", code, len(first), len(second))
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"clusters/eu/pools.cue": pools("1"), "clusters/us/pools.cue": pools("2", "3")} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	out, code := p.run(t, append(env, "ARGOCD_ENV_CLUSTER=us"), dir)
	if code != 0 || strings.Count(out, "kind: NodePool") != 2 {
		t.Errorf("one of two clusters: exit %d\n%s", code, out)
	}
	if out, code := p.run(t, env, dir); code == 0 {
		t.Errorf("without a cluster there is a choice, and it was made: %s", out)
	}
	writeFile(t, filepath.Join(dir, "clusters/us/pools.cue"), strings.Replace(pools("2"), "limits", "limts", 1))
	if out, code := p.run(t, append(env, "ARGOCD_ENV_CLUSTER=us"), dir); code != ExitInvalid || out != "" {
		t.Errorf("a tree with an error: exit %d, and it renders to\n%s", code, out)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestArgoPluginApplies applies what the plugin prints to an API server by server-side
// apply, twice: the second time nothing is left to write.
func TestArgoPluginApplies(t *testing.T) {
	env := testkit.Sandbox(t)
	c := testkit.Client(t, env.REST)
	testkit.InstallCRDs(t, c)
	out, _ := readPlugin(t).run(t, installed(t), filepath.Join(examples, "single-cluster"))
	bundle, findings := render.Manifest("plugin", []byte(out))
	if findings.HasErrors() || len(bundle.Objects) != 2 {
		t.Fatalf("%d objects, %v", len(bundle.Objects), findings)
	}
	a := kube.NewApplier(c)
	for _, o := range bundle.Objects {
		if _, err := a.Apply(t.Context(), kube.Object(o.GVK, o.Value)); err != nil {
			t.Fatal(err)
		}
		again, err := a.Preview(t.Context(), kube.Object(o.GVK, o.Value))
		if err != nil || again.Writes {
			t.Errorf("%s is written again: %v", o.Name, err)
		}
	}
}

// TestRenderedBranch runs the script that writes rendered manifests to a branch.
func TestRenderedBranch(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("the script needs git")
	}
	env := installed(t)
	remote, dir := t.TempDir(), t.TempDir()
	git := func(dir string, args ...string) string {
		t.Helper()
		out, code := command(t, env, dir, "git", args...)
		if code != 0 {
			t.Fatalf("git %v: exit %d", args, code)
		}
		return strings.TrimSpace(out)
	}
	git(remote, "init", "-q", "--bare", "-b", "main")
	git(dir, "init", "-q", "-b", "main")
	git(dir, "remote", "add", "origin", remote)
	script, err := filepath.Abs(filepath.Join(examples, "argocd/render.sh"))
	if err != nil {
		t.Fatal(err)
	}
	push := func(cpu string) {
		t.Helper()
		writeFile(t, filepath.Join(dir, "clusters/eu/pools.cue"), pools(cpu))
		writeFile(t, filepath.Join(dir, "clusters/us/pools.cue"), pools("5"))
		git(dir, "add", "-A")
		git(dir, "commit", "-q", "--allow-empty", "-m", "change")
		if _, code := command(t, env, dir, "sh", script); code != 0 {
			t.Fatalf("exit %d", code)
		}
	}
	push("1")
	if got := git(remote, "ls-tree", "-r", "--name-only", "rendered"); got != "eu/fleet.yaml\nus/fleet.yaml" {
		t.Errorf("the branch holds\n%s", got)
	}
	push("1") // nothing that renders otherwise
	push("2")
	if got := git(remote, "rev-list", "--count", "rendered"); got != "2" {
		t.Errorf("%s commits, want one for each change", got)
	}
	if got := git(remote, "show", "rendered:eu/fleet.yaml"); !strings.Contains(got, "cpu: 2") {
		t.Errorf("rendered:\n%s", got)
	}
	if got := git(dir, "status", "--porcelain"); got != "" || git(dir, "rev-parse", "--abbrev-ref", "HEAD") != "main" {
		t.Errorf("the clone is left changed: %s", got)
	}
	writeFile(t, filepath.Join(dir, "clusters/us/pools.cue"), strings.Replace(pools("2"), "limits", "limts", 1))
	if _, code := command(t, env, dir, "sh", script); code != ExitInvalid {
		t.Errorf("a tree with an error: exit %d", code)
	}
}

// TestCIExamples wants files that parse, and every coppice command in them to be one
// that there is.
func TestCIExamples(t *testing.T) {
	found := 0
	for _, pattern := range []string{"ci/*.yaml", "ci/*.yml", "ci/*.sh", "argocd/*", "flux/*"} {
		names, err := filepath.Glob(filepath.Join(examples, pattern))
		if err != nil || len(names) == 0 {
			t.Errorf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "ml") {
				for _, doc := range strings.Split(string(text), "\n---\n") {
					var v map[string]any
					if err := yaml.UnmarshalStrict([]byte(doc), &v); err != nil || len(v) == 0 {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			for _, line := range strings.Split(string(text), "\n") {
				line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "- "), "run: ")
				words := strings.Fields(strings.TrimPrefix(line, "exec "))
				if len(words) < 2 || words[0] != "coppice" {
					continue
				}
				found++
				root := newRoot(Streams{})
				cmd, _, err := root.Find(words[1:2])
				if err != nil || cmd == root {
					t.Errorf("%s: there is no command %q", name, words[1])
					continue
				}
				for _, w := range words[2:] {
					if flag, ok := strings.CutPrefix(w, "--"); ok && cmd.Flags().Lookup(strings.SplitN(flag, "=", 2)[0]) == nil {
						t.Errorf("%s: %s has no flag --%s", name, cmd.Name(), flag)
					}
				}
			}
		}
	}
	if found < 6 {
		t.Errorf("%d commands found; the reading is broken", found)
	}
}

// TestCheckScript runs the script for any CI system.
func TestCheckScript(t *testing.T) {
	c := newCheckout(t)
	base := c.commit(map[string]string{"pools.cue": pools("100")})
	c.branch("change")
	c.commit(map[string]string{"pools.cue": pools("200")})
	script, err := filepath.Abs(filepath.Join(examples, "ci/check.sh"))
	if err != nil {
		t.Fatal(err)
	}
	env := slices.Concat(installed(t), []string{"CI=true"})
	out, code := command(t, env, c.dir, "sh", script, base)
	if code != 0 || !strings.Contains(out, "1 to change") {
		t.Errorf("exit %d\n%s", code, out)
	}
}
