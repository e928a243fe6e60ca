package gitserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-billy/v5/util"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"
	"github.com/google/go-cmp/cmp"
)

const password = "a secret / with: odd characters"

// serve starts a server with an empty repository "fleet" and returns its URL.
func serve(t *testing.T) (*Server, string) {
	t.Helper()
	srv, err := New(Config{Dir: t.TempDir(), Username: "coppice", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Create("fleet"); err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	t.Cleanup(ts.Close)
	return srv, ts.URL + "/fleet.git"
}

func auth() transport.AuthMethod {
	return &githttp.BasicAuth{Username: "coppice", Password: password}
}

// working is a go-git clone in memory.
type working struct {
	t    *testing.T
	repo *git.Repository
}

func clone(t *testing.T, url string, depth int) working {
	t.Helper()
	repo, err := git.CloneContext(t.Context(), memory.NewStorage(), memfs.New(), &git.CloneOptions{URL: url, Auth: auth(), Depth: depth})
	if err != nil {
		t.Fatalf("clone: %v", err)
	}
	return working{t, repo}
}

// fresh is a new repository whose origin is the server.
func fresh(t *testing.T, url string) working {
	t.Helper()
	repo, err := git.InitWithOptions(memory.NewStorage(), memfs.New(), git.InitOptions{DefaultBranch: DefaultBranch})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.CreateRemote(&config.RemoteConfig{Name: "origin", URLs: []string{url}}); err != nil {
		t.Fatal(err)
	}
	return working{t, repo}
}

func (w working) commit(path, content string) plumbing.Hash {
	w.t.Helper()
	tree, err := w.repo.Worktree()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := util.WriteFile(tree.Filesystem, path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if _, err := tree.Add(path); err != nil {
		w.t.Fatal(err)
	}
	h, err := tree.Commit("write "+path, &git.CommitOptions{Author: &object.Signature{Name: "Ada", Email: "ada@example.com", When: time.Unix(1, 0)}})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w working) push(specs ...config.RefSpec) error {
	return w.repo.PushContext(w.t.Context(), &git.PushOptions{Auth: auth(), RefSpecs: specs})
}

func (w working) mustPush(specs ...config.RefSpec) {
	w.t.Helper()
	if err := w.push(specs...); err != nil {
		w.t.Fatalf("push: %v", err)
	}
}

func (w working) mustPull() {
	w.t.Helper()
	tree, err := w.repo.Worktree()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := tree.PullContext(w.t.Context(), &git.PullOptions{Auth: auth()}); err != nil {
		w.t.Fatalf("pull: %v", err)
	}
}

// log lists the subjects of the commits that HEAD reaches, the newest first.
func (w working) log() []string {
	w.t.Helper()
	iter, err := w.repo.Log(&git.LogOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	err = iter.ForEach(func(c *object.Commit) error {
		out = append(out, c.Message)
		return nil
	})
	if err != nil && !errors.Is(err, plumbing.ErrObjectNotFound) { // the end of a shallow history
		w.t.Fatal(err)
	}
	return out
}

func (w working) read(path string) string {
	w.t.Helper()
	tree, err := w.repo.Worktree()
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := util.ReadFile(tree.Filesystem, path)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

func TestGoGitClients(t *testing.T) {
	srv, url := serve(t)
	var pushes []Push
	stop := srv.Watch(func(p Push) { pushes = append(pushes, p) })

	if _, err := git.Clone(memory.NewStorage(), nil, &git.CloneOptions{URL: url, Auth: auth()}); !errors.Is(err, transport.ErrEmptyRemoteRepository) {
		t.Errorf("clone of an empty repository: %v", err)
	}
	a := fresh(t, url)
	first := a.commit("pools/a.cue", "package pools\n")
	a.mustPush("refs/heads/main:refs/heads/main")

	b := clone(t, url, 0)
	second := b.commit("pools/b.cue", "package pools // b\n")
	b.mustPush()
	third := b.commit("README", "words\n")
	b.mustPush("refs/heads/main:refs/heads/main")

	shallow := clone(t, url, 1)
	if got := shallow.log(); len(got) != 1 {
		t.Errorf("a clone of depth 1 holds %d commits: %q", len(got), got)
	}
	fourth := b.commit("README", "other words\n")
	b.mustPush()
	shallow.mustPull()
	if got := shallow.read("README") + shallow.read("pools/a.cue"); got != "other words\npackage pools\n" {
		t.Errorf("after a pull into a shallow clone: %q", got)
	}

	if _, err := a.repo.CreateTag("v1", first, &git.CreateTagOptions{Tagger: &object.Signature{Name: "Ada"}, Message: "one"}); err != nil {
		t.Fatal(err)
	}
	a.mustPush("refs/tags/v1:refs/tags/v1")
	tagged := clone(t, url, 0)
	if tag, err := tagged.repo.Tag("v1"); err != nil {
		t.Error(err)
	} else if obj, err := tagged.repo.TagObject(tag.Hash()); err != nil || obj.Target != first {
		t.Errorf("the annotated tag did not arrive: %v", err)
	}

	a.mustPush("refs/heads/main:refs/heads/side")
	a.mustPush(":refs/heads/side")
	a.mustPull()
	if diff := cmp.Diff([]string{"write README", "write README", "write pools/b.cue", "write pools/a.cue"}, a.log()); diff != "" {
		t.Error(diff)
	}

	stop()
	b.commit("README", "unwatched\n")
	b.mustPush()
	var moves []string
	for _, p := range pushes {
		moves = append(moves, fmt.Sprintf("%s %s %.7s %.7s", p.Repo, p.Ref, p.Old, p.New))
	}
	var zero plumbing.Hash
	tag, err := a.repo.Tag("v1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("fleet refs/heads/main %.7s %.7s", zero, first),
		fmt.Sprintf("fleet refs/heads/main %.7s %.7s", first, second),
		fmt.Sprintf("fleet refs/heads/main %.7s %.7s", second, third),
		fmt.Sprintf("fleet refs/heads/main %.7s %.7s", third, fourth),
		fmt.Sprintf("fleet refs/tags/v1 %.7s %.7s", zero, tag.Hash()),
		fmt.Sprintf("fleet refs/heads/side %.7s %.7s", zero, first),
		fmt.Sprintf("fleet refs/heads/side %.7s %.7s", first, zero),
	}
	if diff := cmp.Diff(want, moves); diff != "" {
		t.Error(diff)
	}
}

func TestPushAgainstAMovedReferenceIsRefused(t *testing.T) {
	srv, url := serve(t)
	a := fresh(t, url)
	a.commit("f", "1")
	a.mustPush("refs/heads/main:refs/heads/main")
	b := clone(t, url, 0)

	a.commit("f", "2")
	a.mustPush("refs/heads/main:refs/heads/main")
	b.commit("f", "3")
	if err := b.push(); err == nil {
		t.Error("a push that would lose a commit was taken")
	}
	// A forced push names the value it replaces, so it is taken, and only once.
	b.mustPush("+refs/heads/main:refs/heads/main")
	repo, err := srv.Open("fleet")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := repo.Reference(DefaultBranch, true)
	if err != nil {
		t.Fatal(err)
	}
	head, err := b.repo.Head()
	if err != nil {
		t.Fatal(err)
	}
	if ref.Hash() != head.Hash() {
		t.Errorf("the branch is at %s, want %s", ref.Hash(), head.Hash())
	}
}

func TestAccess(t *testing.T) {
	_, url := serve(t)
	base := strings.TrimSuffix(url, "/fleet.git")
	tests := map[string]struct {
		why  string
		path string
		set  func(*http.Request)
		want int
	}{
		"none":           {"a password is wanted", "/fleet.git/info/refs?service=git-upload-pack", func(*http.Request) {}, 401},
		"wrong password": {"every character counts", "/fleet.git/info/refs?service=git-upload-pack", func(r *http.Request) { r.SetBasicAuth("coppice", password+" ") }, 401},
		"wrong user":     {"so does the name", "/fleet.git/info/refs?service=git-upload-pack", func(r *http.Request) { r.SetBasicAuth("root", password) }, 401},
		"basic":          {"git and go-git send this", "/fleet.git/info/refs?service=git-upload-pack", func(r *http.Request) { r.SetBasicAuth("coppice", password) }, 200},
		"bearer":         {"forges take tokens so", "/fleet.git/info/refs?service=git-receive-pack", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+password) }, 200},
		"dumb client":    {"files are not served", "/fleet.git/info/refs", func(r *http.Request) { r.SetBasicAuth("coppice", password) }, 403},
		"file":           {"files are not served", "/fleet.git/HEAD", func(r *http.Request) { r.SetBasicAuth("coppice", password) }, 404},
		"unknown":        {"there is no such repository", "/other.git/info/refs?service=git-upload-pack", func(r *http.Request) { r.SetBasicAuth("coppice", password) }, 404},
		"dots":           {"a name is no path", "/..%2f..git/info/refs?service=git-upload-pack", func(r *http.Request) { r.SetBasicAuth("coppice", password) }, 404},
		"unknown secret": {"who may not read learns nothing", "/other.git/info/refs?service=git-upload-pack", func(*http.Request) {}, 401},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			tc.set(req)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Body.Close(); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != tc.want {
				t.Errorf("%s: got %d, want %d", tc.why, res.StatusCode, tc.want)
			}
		})
	}
}

func TestAutoCreate(t *testing.T) {
	srv, err := New(Config{Dir: t.TempDir(), Username: "coppice", Password: password, AutoCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	t.Cleanup(ts.Close)
	url := ts.URL + "/new.git"
	if _, err := git.Clone(memory.NewStorage(), nil, &git.CloneOptions{URL: url, Auth: auth()}); !errors.Is(err, transport.ErrRepositoryNotFound) {
		t.Errorf("a clone made a repository: %v", err)
	}
	a := fresh(t, url)
	a.commit("f", "1")
	a.mustPush("refs/heads/main:refs/heads/main")
	if got := clone(t, url, 0).read("f"); got != "1" {
		t.Errorf("the repository made by a push holds %q", got)
	}
}

func TestCreateRefusesOddNames(t *testing.T) {
	srv, _ := serve(t)
	for _, name := range []string{"", ".", "..", "a/b", "-x", "x.git", "fleet"} {
		if err := srv.Create(name); err == nil {
			t.Errorf("repository %q was made", name)
		}
	}
}

// system is git itself, with a home of its own so that no user setting matters.
type system struct {
	t    *testing.T
	home string
	url  string
}

func (g system) try(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(g.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Grace", "GIT_AUTHOR_EMAIL=grace@example.com", "GIT_COMMITTER_NAME=Grace", "GIT_COMMITTER_EMAIL=grace@example.com",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g system) run(dir string, args ...string) string {
	g.t.Helper()
	out, err := g.try(dir, args...)
	if err != nil {
		g.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (g system) write(dir, path, content string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.run(dir, "add", path)
	g.run(dir, "commit", "-q", "-m", "write "+path)
}

func TestSystemGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	_, plain := serve(t)
	u, err := url.Parse(plain)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("coppice", password)
	home := t.TempDir()
	g := system{t: t, home: home, url: u.String()}
	g.run(home, "config", "--global", "init.defaultBranch", "main")

	g.run(home, "clone", "-q", g.url, "a") // empty
	a := filepath.Join(home, "a")
	// Enough commits that the negotiation below takes more than one request
	// (git names 16, then 32, … commits) and is sent compressed.
	for i := range 80 {
		g.write(a, "f", strings.Repeat(fmt.Sprintf("line %d\n", i), 100))
	}
	g.run(a, "push", "-q", "origin", "main")
	g.run(home, "clone", "-q", g.url, "b")
	b := filepath.Join(home, "b")
	if got := g.run(b, "rev-list", "--count", "HEAD"); got != "80" {
		t.Errorf("the clone holds %s commits, want 80", got)
	}
	for range 70 {
		g.run(b, "commit", "-q", "--allow-empty", "-m", "of b alone")
	}
	g.write(a, "g", "from a")
	g.run(a, "tag", "-a", "-m", "one", "v1")
	g.run(a, "push", "-q", "--tags", "origin", "main")
	g.run(b, "fetch", "-q", "--tags")
	if got, want := g.run(b, "rev-parse", "origin/main", "v1"), g.run(a, "rev-parse", "main", "v1"); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}
	if out, err := g.try(b, "push", "-q", "origin", "main"); err == nil {
		t.Errorf("a push that would lose a commit was taken: %s", out)
	}
	g.run(b, "push", "-q", "--force", "origin", "main")
	g.run(a, "push", "-q", "origin", "main:refs/heads/side")
	g.run(b, "push", "-q", "origin", ":refs/heads/side")
	refs := strings.Fields(g.run(b, "ls-remote", "origin"))
	if slices.Contains(refs, "refs/heads/side") || !slices.Contains(refs, "refs/tags/v1^{}") {
		t.Errorf("the server has %q", refs)
	}

	g.run(home, "clone", "-q", "--depth", "1", g.url, "c")
	c := filepath.Join(home, "c")
	if got := g.run(c, "rev-list", "--count", "HEAD"); got != "1" {
		t.Errorf("the shallow clone holds %s commits", got)
	}
	g.run(c, "fetch", "-q", "--depth", "3")
	if got := g.run(c, "rev-list", "--count", "HEAD"); got != "3" {
		t.Errorf("the deepened clone holds %s commits, want 3", got)
	}
	g.run(c, "fetch", "-q", "--unshallow")
	if got := g.run(c, "rev-list", "--count", "HEAD"); got != "150" {
		t.Errorf("the full clone holds %s commits, want 150", got)
	}
	for _, dir := range []string{a, b, c} {
		g.run(dir, "fsck", "--full", "--strict")
	}

	u.User = url.UserPassword("coppice", "wrong")
	if out, err := g.try(home, "clone", "-q", u.String(), "d"); err == nil || !strings.Contains(out, "Authentication failed") {
		t.Errorf("clone with a wrong password: %v\n%s", err, out)
	}
}
