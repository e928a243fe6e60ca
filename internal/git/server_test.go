package git

import (
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

const (
	testUser     = "reader"
	testPassword = "s3cr3t/+value"
)

// server is git's own HTTP server in front of one bare repository.
type server struct {
	t    *testing.T
	root string
	// dir is the bare repository, url its address.
	dir, url string
	requests atomic.Int64
	// before runs ahead of every request that pushes, if set.
	before func()
}

func newServer(t *testing.T) *server {
	t.Helper()
	bin, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	s := &server{t: t, root: t.TempDir()}
	s.dir = filepath.Join(s.root, "fleet.git")
	backend := &cgi.Handler{
		Path: bin,
		Args: []string{"http-backend"},
		Env: []string{
			"GIT_PROJECT_ROOT=" + s.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + testUser,
			"GIT_CONFIG_NOSYSTEM=1", "HOME=" + s.root,
		},
		Stderr: io.Discard,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if user, pass, _ := r.BasicAuth(); user != testUser || pass != testPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "no: "+r.Header.Get("Authorization")+" "+pass, http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") && s.before != nil {
			s.before()
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL + "/fleet.git"
	s.git("init", "-q", "--bare", "-b", "main", s.dir)
	s.git("-C", s.dir, "config", "http.receivepack", "true")
	return s
}

// git runs a command and returns its output without the last line's end.
func (s *server) git(args ...string) string {
	s.t.Helper()
	return s.gitIn("", args...)
}

func (s *server) gitIn(stdin string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_NOSYSTEM=1", "HOME="+s.root, "GIT_DIR="+s.dir,
		"GIT_INDEX_FILE="+filepath.Join(s.root, "index"),
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_AUTHOR_DATE=2026-11-30T10:00:00Z",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com", "GIT_COMMITTER_DATE=2026-11-30T10:00:00Z",
	)
	if len(args) > 0 && args[0] == "init" {
		cmd.Env = append(cmd.Env, "GIT_DIR=")
	}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

// entry is a line of a tree to commit: mode and content, or mode and target.
type entry struct {
	mode    string
	content string
}

func file(content string) entry { return entry{mode: "100644", content: content} }

// commit makes a commit of exactly these entries on top of a branch.
func (s *server) commit(branch string, entries map[string]entry) string {
	s.t.Helper()
	s.git("read-tree", "--empty")
	var index strings.Builder
	for name, e := range entries {
		hash := e.content
		if e.mode != "160000" {
			hash = s.gitIn(e.content, "hash-object", "-w", "--stdin")
		}
		index.WriteString(e.mode + " " + hash + "\t" + name + "\n")
	}
	s.gitIn(index.String(), "update-index", "--add", "--index-info")
	args := []string{"commit-tree", s.git("write-tree"), "-m", "change " + branch}
	if tip, ok := s.tip(branch); ok {
		args = append(args, "-p", tip)
	}
	hash := s.git(args...)
	s.git("update-ref", "refs/heads/"+branch, hash)
	return hash
}

func (s *server) tip(branch string) (string, bool) {
	s.t.Helper()
	out := s.git("for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
	return out, out != ""
}

func (s *server) remote() Remote {
	return Remote{URL: s.url, Auth: Auth{Username: testUser, Password: testPassword}}
}
