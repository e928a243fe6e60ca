package child

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// role makes the test binary stand in for a program.
const role = "CHILD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "obedient":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		os.Stdout.WriteString("ready\n")
		<-signals
		os.Exit(0)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		os.Stdout.WriteString("ready\n")
		select {}
	case "failing":
		os.Stdout.WriteString("{\"msg\":\"Starting workers\"}\nno permission\n")
		os.Exit(3)
	case "printing":
		if len(os.Args) == 2 && os.Args[1] == "crds" {
			os.Stdout.WriteString(os.Getenv("CLUSTER_NAME"))
			os.Exit(0)
		}
		os.Stderr.WriteString("unknown command\n")
		os.Exit(2)
	}
	os.Exit(m.Run())
}

func program(t *testing.T, as string) (*Program, <-chan error) {
	t.Helper()
	failed := make(chan error, 2)
	return &Program{
		Path: os.Args[0], Env: []string{role + "=" + as, "CLUSTER_NAME=demo"},
		Log: filepath.Join(t.TempDir(), "log"), Failed: failed,
	}, failed
}

// awaitLog waits until the program has written a text.
func awaitLog(t *testing.T, p *Program, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(p.Log); err == nil && strings.Contains(string(data), text) {
			return
		}
	}
	t.Fatalf("the program did not write %q", text)
}

func TestFailure(t *testing.T) {
	p, failed := program(t, "failing")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
	if got := p.LogTail(); got != "no permission" {
		t.Errorf("the log ends with %q", got)
	}
	p.Stop() // of no effect
}

func TestEnd(t *testing.T) {
	for name, end := range map[string]func(*Program){"killed": (*Program).Kill, "stopped": (*Program).Stop} {
		t.Run(name, func(t *testing.T) {
			for _, as := range []string{"obedient", "stubborn"} {
				p, failed := program(t, as)
				for range 2 {
					if err := p.Start(); err != nil {
						t.Fatal(err)
					}
					awaitLog(t, p, "ready\n")
					end(p)
					if p.process.cmd.ProcessState == nil {
						t.Errorf("%s: it still runs", as)
					}
					if err := os.Truncate(p.Log, 0); err != nil {
						t.Fatal(err)
					}
				}
				select {
				case err := <-failed:
					t.Errorf("%s: %v", as, err)
				default:
				}
			}
		})
	}
}

func TestNotStarted(t *testing.T) {
	p, _ := program(t, "obedient")
	p.Stop()
	p.Path += ".gone"
	if err := p.Start(); err == nil {
		t.Error("it started")
	}
	p.Stop()
}

func TestOutput(t *testing.T) {
	p, _ := program(t, "printing")
	out, err := p.Output(t.Context(), "crds")
	if err != nil || string(out) != "demo" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := p.Output(t.Context(), "crd"); err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("got %v", err)
	}
}
