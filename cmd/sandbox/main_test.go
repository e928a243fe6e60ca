package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// role makes the test binary be something else: the sandbox itself, or a parent
// that starts one and waits.
const role = "SANDBOX_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "sandbox":
		os.Exit(run(os.Args[1:], os.Stdout, ownStderr()))
	case "parent":
		os.Exit(parent())
	}
	os.Exit(m.Run())
}

// parent starts a sandbox that shares its output, and waits for its end.
func parent() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), role+"=sandbox")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// process is a sandbox in a process of its own.
type process struct {
	endpoints.Endpoints
	cmd *exec.Cmd
	// output is at its end once every process that was started has ended.
	output *bufio.Reader
}

func startProcess(t *testing.T, as string, args ...string) process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"up", "--info", "-"}, args...)...)
	cmd.Env = append(os.Environ(), role+"="+as, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	p := process{cmd: cmd, output: bufio.NewReader(out)}
	line, err := p.output.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the sandbox ended: %v\n%s", err, &stderr)
	}
	if err := json.Unmarshal(line, &p.Endpoints); err != nil {
		t.Fatal(err)
	}
	return p
}

// awaitEnd waits until the sandbox is gone and checks that it left nothing.
func (p process) awaitEnd(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, p.output)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the sandbox is still there after 20 s")
	}
	for _, addr := range []string{p.APIServer, p.EC2, p.Git} {
		u, err := url.Parse(addr)
		if err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("tcp", u.Host); err == nil {
			_ = conn.Close()
			t.Errorf("something still listens at %s", addr)
		}
	}
}

func TestUpAndDown(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	p := startProcess(t, "sandbox")
	if host, _, err := net.SplitHostPort(strings.TrimPrefix(p.APIServer, "https://")); err != nil || host != "127.0.0.1" {
		t.Errorf("the API server is at %s", p.APIServer)
	}
	info, err := os.Stat(p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may read the kubeconfig: %v", info.Mode())
	}
	res, err := http.Post(p.EC2, "application/x-www-form-urlencoded", strings.NewReader("Action=DescribeRegions&Version=2016-11-15"))
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode < 400 || res.StatusCode >= 500 {
		t.Errorf("an unsigned AWS request is answered with %d", res.StatusCode)
	}
	_, err = git.Clone(memory.NewStorage(), nil, &git.CloneOptions{
		URL: p.Repo("fleet"), Auth: &githttp.BasicAuth{Username: p.GitUsername, Password: p.GitPassword + "x"},
	})
	if !errors.Is(err, transport.ErrAuthenticationRequired) {
		t.Errorf("a clone with a wrong password: %v", err)
	}

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd(t)
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it was told to stop and failed: %v", err)
	}
	if _, err := os.Stat(p.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data is still in %s", p.DataDir)
	}
}

func TestParentDeathEndsTheSandbox(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	dir := filepath.Join(t.TempDir(), "data")
	p := startProcess(t, "parent", "--data-dir", dir)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd(t)
	_ = p.cmd.Wait() // killed
	if _, err := os.Stat(filepath.Join(dir, "kubernetes.log")); err != nil {
		t.Errorf("a data folder that was asked for is to stay: %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why    string
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"help":         {"nothing asked for", nil, 0, "sandbox [command]", ""},
		"unknown flag": {"misspelt", []string{"up", "--boot-dealy=1s"}, 2, "", "unknown flag: --boot-dealy"},
		"bad duration": {"a unit is missing", []string{"up", "--boot-delay=1"}, 2, "", "--boot-delay"},
		"argument":     {"up takes none", []string{"up", "now"}, 2, "", `unknown command "now"`},
		"full folder":  {"data of another sandbox can't be taken up", []string{"up", "--data-dir", full}, 2, "", "is not empty"},
		"bad region":   {"the catalogue has no prices there", []string{"up", "--region", "mars-1"}, 1, "", "mars-1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && tc.code == 1 {
				t.Skip("it starts a control plane")
			}
			cmd := exec.Command(os.Args[0], tc.args...)
			cmd.Env = append(os.Environ(), role+"=sandbox", "TMPDIR="+t.TempDir())
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tc.code {
				t.Errorf("%s: exit code %d, want %d\n%s", tc.why, code, tc.code, &stderr)
			}
			if !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
				t.Errorf("%s: stdout %q, stderr %q", tc.why, &stdout, &stderr)
			}
		})
	}
}
