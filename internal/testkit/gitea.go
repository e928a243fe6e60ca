package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// GiteaServer is a Gitea with an administrator and a robot.
type GiteaServer struct {
	t testing.TB
	// URL is its address.
	URL string
	// Admin and Robot are tokens of the users admin and coppice.
	Admin, Robot string
}

// Environment variables that say where Gitea is, as 'make e2e-forge' sets them.
const (
	// GiteaEnv is the program.
	GiteaEnv = "COPPICE_GITEA"
	// GiteaFilesEnv is the folder with its templates.
	GiteaFilesEnv = "COPPICE_GITEA_FILES"
)

// giteaLimit bounds how long a Gitea may take to start; it takes about three seconds.
const giteaLimit = time.Minute

// giteaToken is what a token looks like, on a line of its own.
var giteaToken = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`)

// Gitea runs a Gitea until the test ends. The test is skipped if there is none.
func Gitea(t testing.TB) *GiteaServer {
	t.Helper()
	bin, files := os.Getenv(GiteaEnv), os.Getenv(GiteaFilesEnv)
	if bin == "" {
		t.Skip("there is no Gitea: run 'make e2e-forge', which builds one")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	dir := t.TempDir()
	g := &GiteaServer{t: t, URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	ini := filepath.Join(dir, "app.ini")
	text := fmt.Sprintf(`I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
APP_NAME = forge
RUN_MODE = prod
WORK_PATH = %[1]s
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %[2]d
ROOT_URL = %[3]s/
DISABLE_SSH = true
OFFLINE_MODE = true
STATIC_ROOT_PATH = %[4]s
[database]
DB_TYPE = sqlite3
PATH = %[1]s/gitea.db
[repository]
ROOT = %[1]s/repositories
[security]
INSTALL_LOCK = true
SECRET_KEY = test
PASSWORD_HASH_ALGO = pbkdf2$1000$16
[service]
DISABLE_REGISTRATION = true
[actions]
ENABLED = false
[indexer]
ISSUE_INDEXER_TYPE = db
[log]
LEVEL = Error
[cron.update_checker]
ENABLED = false
`, dir, port, g.URL, files)
	if err := os.WriteFile(ini, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(bin, append(args, "--config", ini)...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("gitea %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("migrate")
	for name, token := range map[string]*string{"admin": &g.Admin, "coppice": &g.Robot} {
		user := "boss"
		role := []string{"--admin"}
		if name != "admin" {
			user, role = name, nil
		}
		run(append([]string{"admin", "user", "create", "--username", user, "--password", "test-password-1", "--email", user + "@example.com", "--must-change-password=false"}, role...)...)
		said := run("admin", "user", "generate-access-token", "--username", user, "--token-name", "test", "--scopes", "all", "--raw")
		// Warnings go to the same stream.
		if *token = giteaToken.FindString(said); *token == "" {
			t.Fatalf("Gitea gave no token: %s", said)
		}
	}
	log := &tail{}
	cmd := exec.Command(bin, "web", "--config", ini)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "HOME="+dir), log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start Gitea: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { stop(t, cmd, ended, log) })
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if res, err := http.Get(g.URL + "/api/healthz"); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return g
			}
		}
		if time.Since(begun) > giteaLimit {
			t.Fatalf("Gitea isn't up after %s:\n%s", giteaLimit, log)
		}
	}
}

// Call calls the API as the administrator boss and decodes the answer into out, unless
// that is nil. It returns the status.
func (g *GiteaServer) Call(method, path string, in, out any) int {
	g.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		g.t.Fatal(err)
	}
	req, err := http.NewRequest(method, g.URL+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+g.Admin)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	if out != nil && res.StatusCode < 300 {
		if err := json.Unmarshal(text, out); err != nil {
			g.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	if res.StatusCode >= 300 && res.StatusCode != http.StatusNotFound {
		g.t.Logf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	return res.StatusCode
}
