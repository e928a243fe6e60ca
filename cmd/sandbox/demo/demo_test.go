package demo

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
)

// role makes the test binary stand in for the coppice program.
const role = "DEMO_TEST_ROLE"

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

func child(t *testing.T, as string) (*controller, <-chan error) {
	t.Helper()
	failed := make(chan error, 1)
	c, err := newController(os.Args[0], t.TempDir(), leaseDuration, endpoints.Endpoints{ClusterName: "demo"}, failed)
	if err != nil {
		t.Fatal(err)
	}
	c.env = append(c.env, role+"="+as)
	return c, failed
}

// awaitLog waits until the child has written a text.
func awaitLog(t *testing.T, c *controller, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(c.log); err == nil && strings.Contains(string(data), text) {
			return
		}
	}
	t.Fatalf("the child did not write %q", text)
}

func TestController(t *testing.T) {
	t.Run("its end is a failure", func(t *testing.T) {
		c, failed := child(t, "failing")
		if err := c.start(); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("got %v", err)
		}
		if got := c.logTail(); got != "no permission" {
			t.Errorf("the log ends with %q", got)
		}
		c.stop() // of no effect
	})
	for name, end := range map[string]func(*controller){"killed": (*controller).kill, "stopped": (*controller).stop} {
		t.Run(name, func(t *testing.T) {
			for _, as := range []string{"obedient", "stubborn"} {
				c, failed := child(t, as)
				for range 2 {
					if err := c.start(); err != nil {
						t.Fatal(err)
					}
					awaitLog(t, c, "ready\n")
					end(c)
					if c.process.cmd.ProcessState == nil {
						t.Errorf("%s: it still runs", as)
					}
					if err := os.Truncate(c.log, 0); err != nil {
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
	t.Run("never started", func(t *testing.T) {
		c, _ := child(t, "obedient")
		c.stop()
	})
	t.Run("no such program", func(t *testing.T) {
		c, _ := child(t, "obedient")
		c.path += ".gone"
		if err := c.start(); err == nil {
			t.Error("it started")
		}
		c.stop()
	})
	t.Run("output", func(t *testing.T) {
		c, _ := child(t, "printing")
		out, err := c.output(t.Context(), "crds")
		if err != nil || string(out) != "demo" {
			t.Errorf("got %q, %v", out, err)
		}
		if _, err := c.output(t.Context(), "crd"); err == nil || !strings.Contains(err.Error(), "unknown command") {
			t.Errorf("got %v", err)
		}
	})
}

// repository serves an empty repository with an author's first commit in it.
func repository(t *testing.T) (*gitserver.Server, *author, *pushes) {
	t.Helper()
	srv, err := gitserver.New(gitserver.Config{Dir: t.TempDir(), Username: "u", Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(srv)
	t.Cleanup(ts.Close)
	if err := srv.Create(repoName); err != nil {
		t.Fatal(err)
	}
	p := watchPushes(srv)
	t.Cleanup(p.close)
	a, err := newAuthor(endpoints.Endpoints{Git: ts.URL, GitUsername: "u", GitPassword: "p"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cue.mod"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.cue": "one\ntwo\n", "cue.mod/module.cue": "m\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.add(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := a.push(t.Context(), "First"); err != nil {
		t.Fatal(err)
	}
	return srv, a, p
}

func TestAuthor(t *testing.T) {
	srv, a, _ := repository(t)
	diff, err := a.change(edit{"a.cue", "two\n", "three\n"}, edit{"b.cue", "", "new\n"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "a.cue\n  - two\n  + three\nb.cue (new, 1 lines)\n"; diff != want {
		t.Error(cmp.Diff(want, diff))
	}
	hash, err := a.push(t.Context(), "Second\n\nwith a body")
	if err != nil {
		t.Fatal(err)
	}
	log, err := history(srv, mainBranch)
	if err != nil {
		t.Fatal(err)
	}
	if len(log) != 2 || log[0] != hash.String()[:7]+" Second (Ada)" {
		t.Errorf("the log is %q", log)
	}
	files, err := reports(srv, hash)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a.cue": "one\nthree\n", "b.cue": "new\n", "cue.mod/module.cue": "m\n"}; !cmp.Equal(want, files) {
		t.Error(cmp.Diff(want, files))
	}
	if log, err := history(srv, driftBranch); err != nil || len(log) != 0 {
		t.Errorf("a branch that isn't there has the log %q, %v", log, err)
	}
	for name, e := range map[string]edit{
		"gone":      {"a.cue", "two\n", "four\n"},
		"ambiguous": {"a.cue", "e\n", "x\n"},
		"no file":   {"c.cue", "x", "y"},
	} {
		if _, err := a.change(e); err == nil {
			t.Errorf("%s: the edit was made", name)
		}
	}
}

func TestPushes(t *testing.T) {
	_, a, p := repository(t)
	if n := p.count(mainBranch); n != 1 {
		t.Errorf("%d pushes, want 1", n)
	}
	if _, err := a.change(edit{"a.cue", "two", "2"}); err != nil {
		t.Fatal(err)
	}
	got := make(chan plumbing.Hash, 1)
	go func() {
		push, _ := p.after(t.Context(), mainBranch, 1)
		got <- push.New
	}()
	hash, err := a.push(t.Context(), "Second")
	if err != nil {
		t.Fatal(err)
	}
	if h := <-got; h != hash {
		t.Errorf("saw the push of %s, want %s", h, hash)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if _, err := p.after(ctx, mainBranch, 2); !errors.Is(err, over) {
		t.Errorf("got %v", err)
	}
}

func TestStory(t *testing.T) {
	var b strings.Builder
	now := time.Unix(1e9, 0)
	s := newStory(&b, func() time.Time { return now })
	now = now.Add(time.Minute)
	s.title("Title")
	s.begin(1, "First", 10*time.Second)
	s.say("one\ntwo %d", 2)
	s.fact("seen")
	s.end(nil)
	s.begin(2, "Then", 5*time.Second)
	s.end(errors.New("not seen"))
	s.summary()
	want := `Title
=====

1. First
   60.0 s  one
           two 2

2. Then
   60.0 s  FAILED: not seen

Summary

      step     took   limit  what was seen
   1  First    0.0 s    10 s  seen
   2  Then     0.0 s     5 s  FAILED
      in all  60.0 s
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestStepLimit: a step that waits for ever ends with what it waited for.
func TestStepLimit(t *testing.T) {
	s := &scene{story: newStory(io.Discard, time.Now)}
	err := s.runStep(t.Context(), step{"Wait", 10 * time.Millisecond, func(ctx context.Context, _ *scene) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	if err == nil || err.Error() != "it did not happen within 10ms" {
		t.Errorf("got %v", err)
	}
}

// TestEditsFitTheExample: the demo changes texts of the example, which somebody
// else may change too.
func TestEditsFitTheExample(t *testing.T) {
	text, err := os.ReadFile("../../../examples/single-cluster/nodepools.cue")
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{`["m5.large", "m5.xlarge", "m5.2xlarge"]`, "1000\n", "limits: {", `values: ["spot", "on-demand"]}`, `consolidateAfter:    "30s"`} {
		if strings.Count(string(text), old) != 1 {
			t.Errorf("nodepools.cue does not hold %q once", old)
		}
	}
}
