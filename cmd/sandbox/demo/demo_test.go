package demo

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
)

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
