package git

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func testWrite(files map[string]string) Write {
	w := Write{
		Branch:  "coppice/drift",
		Files:   map[string][]byte{},
		Seed:    map[string][]byte{"README.md": []byte("reports\n")},
		Author:  Identity{Name: "Coppice", Email: "coppice@example.com"},
		Message: "drift: one field\n\nCoppice-Source: fleet/one\n",
		Now:     time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC),
	}
	for name, content := range files {
		w.Files[name] = nil
		if content != "" {
			w.Files[name] = []byte(content)
		}
	}
	return w
}

func (s *server) files(branch string) string {
	s.t.Helper()
	return s.git("ls-tree", "-r", "--name-only", branch)
}

func (s *server) count(branch string) string {
	s.t.Helper()
	return s.git("rev-list", "--count", branch)
}

// TestPush follows one report from the branch's beginning to its end.
func TestPush(t *testing.T) {
	s := newServer(t)
	s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	steps := []struct {
		why     string
		files   map[string]string
		changed bool
		list    string
		commits string
	}{
		{"nothing to remove begins no branch", map[string]string{"drift/one/fleet.yaml": ""}, false, "", ""},
		{"the first report begins the branch, without a parent", map[string]string{"drift/one/fleet.yaml": "a\n"}, true, "README.md\ndrift/one/fleet.yaml", "1"},
		{"the same report again is no commit", map[string]string{"drift/one/fleet.yaml": "a\n"}, false, "README.md\ndrift/one/fleet.yaml", "1"},
		{"another cluster's file stands beside it", map[string]string{"drift/two/fleet.yaml": "b\n"}, true, "README.md\ndrift/one/fleet.yaml\ndrift/two/fleet.yaml", "2"},
		{"a changed report is a commit", map[string]string{"drift/one/fleet.yaml": "c\n"}, true, "README.md\ndrift/one/fleet.yaml\ndrift/two/fleet.yaml", "3"},
		{"a resolved report goes, its folder with it", map[string]string{"drift/one/fleet.yaml": ""}, true, "README.md\ndrift/two/fleet.yaml", "4"},
		{"and stays gone without a commit", map[string]string{"drift/one/fleet.yaml": ""}, false, "README.md\ndrift/two/fleet.yaml", "4"},
	}
	for _, step := range steps {
		out, err := s.remote().Push(t.Context(), testWrite(step.files), Retry{})
		if err != nil {
			t.Fatalf("%s: %v", step.why, err)
		}
		tip, exists := s.tip("coppice/drift")
		if out.Changed != step.changed || out.Hash != tip {
			t.Errorf("%s: got %+v with the branch at %q", step.why, out, tip)
		}
		if !exists {
			if step.list != "" {
				t.Errorf("%s: there is no branch", step.why)
			}
			continue
		}
		if diff := cmp.Diff(step.list, s.files("coppice/drift")); diff != "" {
			t.Errorf("%s: %s", step.why, diff)
		}
		if got := s.count("coppice/drift"); got != step.commits {
			t.Errorf("%s: %s commits, want %s", step.why, got, step.commits)
		}
	}
	s.git("fsck", "--strict")
	want := "Coppice <coppice@example.com> 2026-11-30T10:00:00Z\ndrift: one field\n\nCoppice-Source: fleet/one"
	got := s.git("log", "-1", "--format=%cn <%ce> %cI%n%B", "coppice/drift")
	if diff := cmp.Diff(want, strings.Replace(strings.TrimSpace(got), "+00:00", "Z", 1)); diff != "" {
		t.Error(diff)
	}
	if got := s.count("main"); got != "1" {
		t.Errorf("main has %s commits, want 1", got)
	}
}

func TestPushLastFile(t *testing.T) {
	s := newServer(t)
	w := testWrite(map[string]string{"drift/one.yaml": "a\n"})
	w.Seed = nil
	if _, err := s.remote().Push(t.Context(), w, Retry{}); err != nil {
		t.Fatal(err)
	}
	w.Files["drift/one.yaml"] = nil
	if _, err := s.remote().Push(t.Context(), w, Retry{}); err != nil {
		t.Fatal(err)
	}
	if got := s.files("coppice/drift"); got != "" {
		t.Errorf("the branch holds %q", got)
	}
	s.git("fsck", "--strict")
}

// TestPushRace has many writers push in the same instant, again and again: every
// report lands, once, in a history without forks. COPPICE_PUSH_ROUNDS says how
// often; a hundred rounds take minutes.
func TestPushRace(t *testing.T) {
	const writers = 8
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	if n, err := strconv.Atoi(os.Getenv("COPPICE_PUSH_ROUNDS")); err == nil {
		rounds = n
	}
	s := newServer(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	retry := Retry{Attempts: 12, Delay: 20 * time.Millisecond, Jitter: func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return rnd.Float64()
	}}
	most := 0
	for round := range rounds {
		var wg sync.WaitGroup
		tries := make([]int, writers)
		errs := make([]error, writers)
		start := make(chan struct{})
		for i := range writers {
			wg.Go(func() {
				<-start
				text := fmt.Sprintf("%d of %d\n", round, i)
				out, err := s.remote().Push(t.Context(), testWrite(map[string]string{fmt.Sprintf("drift/%d.yaml", i): text}), retry)
				tries[i], errs[i] = out.Tries, err
			})
		}
		close(start)
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		most = max(most, slices.Max(tries))
		for i := range writers {
			if got := s.git("show", fmt.Sprintf("coppice/drift:drift/%d.yaml", i)); got != fmt.Sprintf("%d of %d", round, i) {
				t.Fatalf("round %d: the report of writer %d is %q", round, i, got)
			}
		}
	}
	if got := strings.Count(s.files("coppice/drift"), "drift/"); got != writers {
		t.Errorf("%d reports landed, want %d", got, writers)
	}
	if got := s.count("coppice/drift"); got != fmt.Sprint(writers*rounds) {
		t.Errorf("%s commits, want %d", got, writers*rounds)
	}
	if got := s.git("rev-list", "--merges", "--count", "coppice/drift"); got != "0" {
		t.Errorf("%s merges", got)
	}
	s.git("fsck", "--strict")
	t.Logf("at most %d tries", most)
}

// TestPushConflict moves the branch between the moment that its tip is read and
// the moment that the commit arrives.
func TestPushConflict(t *testing.T) {
	s := newServer(t)
	if _, err := s.remote().Push(t.Context(), testWrite(map[string]string{"drift/one.yaml": "a\n"}), Retry{}); err != nil {
		t.Fatal(err)
	}
	moves := 0
	s.before = func() {
		if moves++; moves <= 2 {
			s.commit("coppice/drift", map[string]entry{"drift/one.yaml": file("a\n"), "human.md": file(fmt.Sprint(moves))})
		}
	}
	out, err := s.remote().Push(t.Context(), testWrite(map[string]string{"drift/one.yaml": "b\n"}), Retry{Delay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if out.Tries != 3 || !out.Changed {
		t.Errorf("got %+v, want 3 tries", out)
	}
	if got := s.git("show", "coppice/drift:human.md"); got != "2" {
		t.Errorf("the other writer's file is %q", got)
	}
	if got := s.git("show", "coppice/drift:drift/one.yaml"); got != "b" {
		t.Errorf("the report is %q", got)
	}

	moves = -1 << 30
	s.before = func() {
		moves++
		s.commit("coppice/drift", map[string]entry{"human.md": file(fmt.Sprint(moves))})
	}
	_, err = s.remote().Push(t.Context(), testWrite(map[string]string{"drift/one.yaml": "c\n"}), Retry{Attempts: 3, Delay: time.Millisecond})
	if !errors.Is(err, ErrConflict) {
		t.Errorf("error is %v, want ErrConflict", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.before = func() { cancel(); s.commit("coppice/drift", map[string]entry{"human.md": file("z")}) }
	_, err = s.remote().Push(ctx, testWrite(map[string]string{"drift/one.yaml": "d\n"}), Retry{Delay: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
}

func TestPushRejected(t *testing.T) {
	s := newServer(t)
	s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	hook := "#!/bin/sh\necho 'branch is protected' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(s.dir, "hooks", "update"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := s.remote().Push(t.Context(), testWrite(map[string]string{"drift/one.yaml": "a\n"}), Retry{})
	if !errors.Is(err, ErrRejected) || errors.Is(err, ErrConflict) {
		t.Errorf("error is %v, want ErrRejected", err)
	}
	noSecrets(t, s.remote(), err)

	r := s.remote()
	r.Auth.Password = "wrong"
	_, err = r.Push(t.Context(), testWrite(map[string]string{"drift/one.yaml": "a\n"}), Retry{})
	if !errors.Is(err, ErrAuth) {
		t.Errorf("error is %v, want ErrAuth", err)
	}
	for _, w := range []Write{
		{Branch: "", Author: Identity{"a", "b"}},
		{Branch: "x..y", Author: Identity{"a", "b"}},
		{Branch: "x", Author: Identity{"a", ""}},
		{Branch: "x", Author: Identity{"a", "b"}, Files: map[string][]byte{"../x": nil}},
	} {
		if _, err := s.remote().Push(t.Context(), w, Retry{}); err == nil {
			t.Errorf("%+v was pushed", w)
		}
	}
}
