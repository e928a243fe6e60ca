package testkit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
)

// Env is a running sandbox.
type Env struct {
	endpoints.Endpoints
	// REST is the administrator's client configuration, without rate limits.
	REST *rest.Config
}

const (
	// sandboxStart bounds the start of a sandbox, which takes 4 s on two idle
	// cores.
	sandboxStart = 2 * time.Minute
	// sandboxStop bounds its end, which takes 2 s.
	sandboxStop = 20 * time.Second
)

// Sandbox starts bin/sandbox with the given further flags of "sandbox up" and
// stops it when the test ends. A test is skipped when the sandbox isn't built,
// unless COPPICE_REQUIRE_SANDBOX is 1, and when UPDATE is set. When the test fails, the end of the
// sandbox's log is in its output.
func Sandbox(t testing.TB, flags ...string) *Env {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		t.Skip("goldens are being rewritten, of which none needs a control plane")
	}
	bin := filepath.Join(moduleRoot(t), "bin", "sandbox")
	if _, err := os.Stat(bin); err != nil {
		if os.Getenv("COPPICE_REQUIRE_SANDBOX") == "1" {
			t.Fatalf("%s is not built and COPPICE_REQUIRE_SANDBOX is set: run make sandbox", bin)
		}
		t.Skipf("%s is not built: run make sandbox to run this test", bin)
	}

	cmd := exec.Command(bin, append([]string{"up", "--info", "-"}, flags...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("start the sandbox: %v", err)
	}
	log := &tail{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the sandbox: %v", err)
	}
	ended := make(chan error, 1)
	first := make(chan []byte, 1)
	go func() {
		lines := bufio.NewReader(stdout)
		line, _ := lines.ReadBytes('\n') // a short line is no JSON
		first <- line
		_, _ = lines.WriteTo(log)
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() { stop(t, cmd, ended, log) })

	limit := time.NewTimer(sandboxStart)
	defer limit.Stop()
	env := &Env{}
	select {
	case line := <-first:
		if err := json.Unmarshal(line, &env.Endpoints); err != nil {
			t.Fatalf("the sandbox ended before it was ready:\n%s", log)
		}
	case <-limit.C:
		t.Fatalf("the sandbox was not ready within %s:\n%s", sandboxStart, log)
	}
	if env.REST, err = clientcmd.BuildConfigFromFlags("", env.Kubeconfig); err != nil {
		t.Fatalf("read the sandbox's kubeconfig: %v", err)
	}
	env.REST.QPS = -1
	return env
}

func stop(t testing.TB, cmd *exec.Cmd, ended <-chan error, log *tail) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	limit := time.NewTimer(sandboxStop)
	defer limit.Stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the sandbox failed: %v\n%s", err, log)
		} else if t.Failed() {
			t.Logf("the end of the sandbox's log:\n%s", log)
		}
	case <-limit.C:
		_ = cmd.Process.Kill()
		<-ended
		t.Errorf("the sandbox did not end within %s of SIGTERM:\n%s", sandboxStop, log)
	}
}

// Setenv makes the AWS SDK and a controller in this process find the sandbox.
func (e *Env) Setenv(t testing.TB) {
	t.Helper()
	for _, kv := range e.Environ() {
		key, value, _ := strings.Cut(kv, "=")
		t.Setenv(key, value)
	}
}

// moduleRoot is the folder of Coppice's go.mod, whichever package is tested.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && bytes.HasPrefix(mod, []byte("module github.com/coppice-dev/coppice\n")):
			return dir
		case err != nil && !errors.Is(err, os.ErrNotExist):
			t.Fatal(err)
		case filepath.Dir(dir) == dir:
			t.Fatal("the test runs outside of Coppice's module")
		}
		dir = filepath.Dir(dir)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 16 << 10

// Write implements io.Writer.
func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	if n := len(l.data) - tailBytes; n > 0 {
		l.data = append(l.data[:0], l.data[n:]...)
	}
	return len(p), nil
}

// String implements fmt.Stringer.
func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.data)
}
