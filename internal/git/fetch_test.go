package git

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/storage/memory"
	"github.com/google/go-cmp/cmp"
)

func TestFetch(t *testing.T) {
	s := newServer(t)
	first := s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	hash := s.commit("main", map[string]entry{
		"a.cue":                 file("a: 2\n"),
		"clusters/one/pool.cue": file("package one\n"),
		"clusters-old/x":        file("x"),
		"bin/run":               {mode: "100755", content: "#!/bin/sh\n"},
	})
	s.git("tag", "-a", "v1.0", "-m", "first", first)
	s.git("tag", "light", first)
	for _, tag := range []string{"v1.2.0", "v1.3.0", "1.3.0-beta", "v2.0.0-rc.1", "nightly"} {
		s.git("tag", tag, first)
	}
	s.git("update-ref", "refs/pull/7/head", first)

	for name, tc := range map[string]struct {
		why  string
		ref  Ref
		want string
	}{
		"default":       {"the default branch is read when nothing is named", Ref{}, "main@sha1:" + hash},
		"branch":        {"a branch gives its tip", Ref{Branch: "main"}, "main@sha1:" + hash},
		"annotated tag": {"an annotated tag gives the commit, not the tag object", Ref{Branch: "main", Tag: "v1.0"}, "v1.0@sha1:" + first},
		"range":         {"the highest version in the range is taken, and no pre-release", Ref{Tag: "light", SemVer: ">=1.0"}, "v1.3.0@sha1:" + first},
		"pre-releases":  {"a range that names one takes them", Ref{SemVer: ">=1.0-0"}, "v2.0.0-rc.1@sha1:" + first},
		"light tag":     {"a light tag gives the commit", Ref{Tag: "light"}, "light@sha1:" + first},
		"full name":     {"pull requests are refs like any other", Ref{Tag: "light", Name: "refs/pull/7/head"}, "refs/pull/7/head@sha1:" + first},
		"commit":        {"a commit that is no tip can be asked for", Ref{Commit: first}, "sha1:" + first},
	} {
		t.Run(name, func(t *testing.T) {
			rev, err := s.remote().Head(t.Context(), tc.ref)
			if err != nil {
				t.Fatal(err)
			}
			if rev.String() != tc.want {
				t.Fatalf("%s: revision is %s, want %s", tc.why, rev, tc.want)
			}
			c, err := s.remote().Fetch(t.Context(), rev)
			if err != nil {
				t.Fatal(err)
			}
			if c.Author.Email != "ada@example.com" || c.Subject != "change main" {
				t.Errorf("commit is by %v with subject %q", c.Author, c.Subject)
			}
			if n := len(c.store.(*memory.Storage).Commits); n != 1 {
				t.Errorf("%d commits were fetched, want 1", n)
			}
		})
	}

	rev, err := s.remote().Head(t.Context(), Ref{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.remote().Fetch(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	root, err := c.FS("")
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(root, "a.cue", "clusters/one/pool.cue", "clusters-old/x", "bin/run"); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"clusters", "/clusters/", "./clusters"} {
		sub, err := c.FS(dir)
		if err != nil {
			t.Fatal(err)
		}
		data, err := fs.ReadFile(sub, "one/pool.cue")
		if err != nil || string(data) != "package one\n" {
			t.Errorf("%s: read %q, %v", dir, data, err)
		}
		if _, err := fs.Stat(sub, "a.cue"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file outside of the folder is visible: %v", dir, err)
		}
	}
	for _, dir := range []string{"..", "../x", "clusters/../..", "nowhere", `a\b`} {
		if _, err := c.FS(dir); !errors.Is(err, ErrTree) {
			t.Errorf("folder %q: error is %v, want ErrTree", dir, err)
		}
	}
}

// TestHeadIsOneRequest holds the price of a poll that finds nothing new.
func TestHeadIsOneRequest(t *testing.T) {
	s := newServer(t)
	s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	before := s.requests.Load()
	if _, err := s.remote().Head(t.Context(), Ref{}); err != nil {
		t.Fatal(err)
	}
	if n := s.requests.Load() - before; n != 1 {
		t.Errorf("Head made %d requests, want 1", n)
	}
}

func TestFetchAcrossMoves(t *testing.T) {
	s := newServer(t)
	hash := s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	rev, err := s.remote().Head(t.Context(), Ref{})
	if err != nil {
		t.Fatal(err)
	}
	s.commit("main", map[string]entry{"a.cue": file("a: 2\n")})
	c, err := s.remote().Fetch(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	root, err := c.FS("")
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(root, "a.cue")
	if err != nil || string(data) != "a: 1\n" || c.Revision.Hash != hash {
		t.Errorf("got %q of %s, %v; want what Head named", data, c.Revision, err)
	}
}

func TestTreeRefusals(t *testing.T) {
	s := newServer(t)
	deep := strings.Repeat("d/", maxDepth+1) + "f"
	for name, tc := range map[string]struct {
		why     string
		entries map[string]entry
		dir     string
		kind    error
		say     []string
	}{
		"symlink": {
			why:     "a link can lead a reader out of the repository",
			entries: map[string]entry{"a.cue": file("a: 1\n"), "p/b.cue": {mode: "120000", content: "/etc/passwd"}},
			kind:    ErrTree,
			say:     []string{`"p/b.cue" (symbolic link)`},
		},
		"submodule": {
			why:     "a submodule is content that nobody fetched",
			entries: map[string]entry{"a.cue": file("a: 1\n"), "lib": {mode: "160000", content: strings.Repeat("1", 40)}},
			kind:    ErrTree,
			say:     []string{`"lib" (submodule)`},
		},
		"several": {
			why: "all kinds are named, but not a thousand of them",
			entries: map[string]entry{
				"1": {mode: "120000", content: "x"}, "2": {mode: "120000", content: "x"}, "3": {mode: "120000", content: "x"},
				"4": {mode: "120000", content: "x"}, "5": {mode: "120000", content: "x"}, "6": {mode: "120000", content: "x"},
				"7": {mode: "120000", content: "x"},
			},
			kind: ErrTree,
			say:  []string{`"1" (symbolic link)`, "and 2 more"},
		},
		"elsewhere": {
			why:     "what is not read is not judged",
			entries: map[string]entry{"docs/latest": {mode: "120000", content: "v1"}, "fleet/a.cue": file("a: 1\n")},
			dir:     "fleet",
		},
		"deep": {
			why:     "a reader that recurses is not led into the depth",
			entries: map[string]entry{deep: file("x")},
			kind:    ErrTooLarge,
			say:     []string{"nest deeper"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.commit("case", tc.entries)
			rev, err := s.remote().Head(t.Context(), Ref{Branch: "case"})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.remote().Fetch(t.Context(), rev)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.FS(tc.dir)
			if !errors.Is(err, tc.kind) {
				t.Fatalf("%s: error is %v, want %v", tc.why, err, tc.kind)
			}
			for _, say := range tc.say {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("error %q doesn't say %q", err, say)
				}
			}
		})
	}
}

func TestLimits(t *testing.T) {
	s := newServer(t)
	many := map[string]entry{}
	for i := range 200 {
		many["f"+strconv.Itoa(i)] = file(strconv.Itoa(i))
	}
	s.commit("many", many)
	// 32 MiB of zeros travel as 32 kB.
	s.commit("bomb", map[string]entry{"zeros": file(strings.Repeat("\x00", 32<<20))})
	for name, tc := range map[string]struct {
		why    string
		branch string
		limits Limits
		kind   error
	}{
		"fits":    {"limits are inclusive of what is usual", "many", Limits{}, nil},
		"objects": {"objects are counted before they are read", "many", Limits{Files: 100}, ErrTooLarge},
		"pack":    {"the pack is bounded as it travels", "many", Limits{PackBytes: 512}, ErrTooLarge},
		"bomb":    {"a small pack may not grow without bound", "bomb", Limits{TreeBytes: 1 << 20}, ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.remote()
			r.Limits = tc.limits
			rev, err := r.Head(t.Context(), Ref{Branch: tc.branch})
			if err != nil {
				t.Fatal(err)
			}
			c, err := r.Fetch(t.Context(), rev)
			if err == nil {
				_, err = c.FS("")
			}
			if !errors.Is(err, tc.kind) {
				t.Errorf("%s: error is %v, want %v", tc.why, err, tc.kind)
			}
			if tc.kind != nil {
				t.Log(err)
			}
			var e *Error
			if tc.kind != nil && (!errors.As(err, &e) || !e.Permanent()) {
				t.Errorf("%v is not permanent", err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	s := newServer(t)
	s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	// A server that repeats what it was sent, in a page of a megabyte.
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		for range 1000 {
			_, _ = w.Write([]byte(r.Header.Get("Authorization") + "\n" + strings.Repeat("x", 1000)))
		}
	}))
	t.Cleanup(echo.Close)
	host := strings.TrimPrefix(s.url, "http://")

	for name, tc := range map[string]struct {
		why  string
		edit func(*Remote)
		ref  Ref
		kind error
	}{
		"password":    {"wrong credentials are told apart", func(r *Remote) { r.Auth.Password = "wrong-" + testPassword }, Ref{}, ErrAuth},
		"anonymous":   {"no credentials are wrong credentials", func(r *Remote) { r.Auth = Auth{} }, Ref{}, ErrAuth},
		"token":       {"a bearer token is sent as one", func(r *Remote) { r.Auth = Auth{Token: testPassword} }, Ref{}, ErrAuth},
		"repository":  {"a missing repository is told apart", func(r *Remote) { r.URL = strings.Replace(r.URL, "fleet", "none", 1) }, Ref{}, ErrNotFound},
		"branch":      {"a missing branch is told apart", func(*Remote) {}, Ref{Branch: "nope"}, ErrRef},
		"commit":      {"a short hash is refused without a request", func(*Remote) {}, Ref{Commit: "abc123"}, ErrRef},
		"userinfo":    {"credentials belong into a secret", func(r *Remote) { r.URL = "http://u:" + testPassword + "@" + host }, Ref{}, ErrURL},
		"scheme":      {"other protocols are refused, local paths above all", func(r *Remote) { r.URL = "file:///etc" }, Ref{}, ErrURL},
		"scp":         {"so is the scp form", func(r *Remote) { r.URL = "git@example.com:fleet.git" }, Ref{}, ErrURL},
		"unparseable": {"a broken address isn't repeated with its password", func(r *Remote) { r.URL = "http://u:" + testPassword + "@%zz" }, Ref{}, ErrURL},
		"timeout":     {"a slow server is a timeout", func(r *Remote) { r.URL = slow.URL + "/fleet.git" }, Ref{}, context.DeadlineExceeded},
		"unreachable": {"a closed port is worth another try", func(r *Remote) { r.URL = "http://127.0.0.1:1/fleet.git" }, Ref{}, nil},
		"echo":        {"a server can't smuggle credentials into an error", func(r *Remote) { r.URL = echo.URL + "/fleet.git" }, Ref{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if name == "timeout" {
				ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
			}
			defer cancel()
			r := s.remote()
			tc.edit(&r)
			_, err := r.Head(ctx, tc.ref)
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, tc.kind) && tc.kind != nil || tc.kind == nil && e.Kind != nil {
				t.Fatalf("%s: error is %v, want %v", tc.why, err, tc.kind)
			}
			noSecrets(t, r, err)
			if strings.ContainsAny(err.Error(), "\n\r\t") || len(err.Error()) > 700 {
				t.Errorf("error is no short line: %q", err)
			}
		})
	}
}

// TestEndlessRefs: a server that never stops listing refs is not listened to for
// ever.
func TestEndlessRefs(t *testing.T) {
	var first, line bytes.Buffer
	hash := strings.Repeat("1", 40)
	if err := errors.Join(
		pktline.NewEncoder(&first).Encodef("%s refs/heads/a\x00symref=HEAD:refs/heads/a agent=x\n", hash),
		pktline.NewEncoder(&line).Encodef("%s refs/heads/b\n", hash),
	); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = w.Write([]byte("001e# service=git-upload-pack\n0000" + first.String()))
		for {
			if _, err := w.Write(bytes.Repeat(line.Bytes(), 1000)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	_, err := Remote{URL: srv.URL + "/x.git"}.Head(t.Context(), Ref{Branch: "main"})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("error is %v, want ErrTooLarge", err)
	}
	t.Log(err)
}

// noSecrets fails if an error, printed in any way, holds the password.
func noSecrets(t *testing.T, r Remote, err error) {
	t.Helper()
	for _, text := range []string{err.Error(), sprint("%+v", err), sprint("%#v", errors.Unwrap(err)), sprint("%v %+v %#v", r.Auth, r.Auth, r.Auth)} {
		for _, form := range append((Auth{Username: testUser, Password: testPassword}).forms(), r.Auth.forms()...) {
			if strings.Contains(text, form) {
				t.Errorf("%q is in %q", form, text)
			}
		}
	}
}

func TestAuthIsHidden(t *testing.T) {
	r := Remote{URL: "https://example.com/x", Auth: Auth{Username: "u", Password: "pa55", Token: "t0ken"}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := sprint(verb, r); strings.Contains(text, "pa55") || strings.Contains(text, "t0ken") {
			t.Errorf("%s prints %q", verb, text)
		}
	}
}

func TestRedactURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://example.com/a.git":              "https://example.com/a.git",
		"https://u:p@example.com/a.git":          "https://example.com/a.git",
		"https://example.com/a.git?token=abc#x":  "https://example.com/a.git",
		"https://u:p%zz@example.com/a?token=abc": "https://example.com/a",
		"http://u:1234/p@example.com/a.git":      "http://example.com/a.git",
		"https://example.com/@scope/a.git":       "https://example.com/@scope/a.git",
		"git@example.com:a.git":                  "example.com:a.git",
		"not a url":                              "not a url",
	} {
		if got := RedactURL(in); got != want {
			t.Errorf("RedactURL(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRevisionText(t *testing.T) {
	hash := strings.Repeat("0a", 20)
	for _, rev := range []Revision{{Ref: "main", Hash: hash}, {Hash: hash}, {Ref: "release@sha1:x", Hash: hash}} {
		got, err := ParseRevision(rev.String())
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(rev, got); diff != "" {
			t.Error(diff)
		}
	}
	for _, bad := range []string{"", "main", "main@sha1:", "@sha1:" + hash, "mainsha1:" + hash, "main@sha1:" + hash[1:], "main@sha1:" + strings.ToUpper(hash)} {
		if rev, err := ParseRevision(bad); err == nil {
			t.Errorf("%q parsed as %v", bad, rev)
		}
	}
}
