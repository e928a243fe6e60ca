package git

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// packed makes an archive of headers; a file's content is as long as it says.
func packed(t *testing.T, heads ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, h := range heads {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func plainFile(name string, size int64) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o644}
}

func TestArtifact(t *testing.T) {
	good := packed(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, plainFile("./a.cue", 3), tar.Header{Name: "clusters/one/", Typeflag: tar.TypeDir}, plainFile("clusters/one/b.cue", 5), plainFile("clusters/z", 1))
	for name, tc := range map[string]struct {
		why    string
		data   []byte
		dir    string
		digest string
		limits Limits
		kind   error
		say    string
	}{
		"whole":       {why: "the root is every file", data: good},
		"folder":      {why: "a folder is shown alone", data: good, dir: "clusters"},
		"no folder":   {why: "the folder must be there", data: good, dir: "none", kind: ErrTree, say: `no folder "none"`},
		"outside":     {why: "the folder must be inside", data: good, dir: "../x", kind: ErrTree},
		"changed":     {why: "another archive isn't what was announced", data: good, digest: "sha256:" + strings.Repeat("0", 64), kind: ErrDigest},
		"no digest":   {why: "what isn't announced can't be checked", data: good, digest: "-", kind: ErrDigest},
		"weak digest": {why: "MD5 proves nothing", data: good, digest: "md5:" + strings.Repeat("0", 32), kind: ErrDigest, say: "neither"},
		"symlink":     {why: "a link can lead anywhere", data: packed(t, tar.Header{Name: "l", Linkname: "/etc", Typeflag: tar.TypeSymlink}), kind: ErrTree, say: `"l" (link)`},
		"hard link":   {why: "so can a hard one", data: packed(t, plainFile("a", 1), tar.Header{Name: "l", Linkname: "a", Typeflag: tar.TypeLink}), kind: ErrTree, say: "link"},
		"device":      {why: "a device isn't a file", data: packed(t, tar.Header{Name: "d", Typeflag: tar.TypeChar}), kind: ErrTree, say: "neither"},
		"parent":      {why: "a path may not lead out", data: packed(t, plainFile("a/../../b", 1)), kind: ErrTree, say: "malformed name"},
		"absolute":    {why: "nor begin at the root", data: packed(t, plainFile("/b", 1)), kind: ErrTree, say: "malformed name"},
		"git folder":  {why: "nobody's .git is read", data: packed(t, plainFile("a/.GIT/config", 1)), kind: ErrTree, say: "malformed name"},
		"twice":       {why: "it isn't clear which one counts", data: packed(t, plainFile("a", 1), plainFile("a", 2)), kind: ErrTree, say: "twice"},
		"both":        {why: "a file has nothing in it", data: packed(t, plainFile("a", 1), plainFile("a/b", 2)), kind: ErrTree, say: "both"},
		"no archive":  {why: "it is something else", data: []byte("<html>"), kind: ErrTree, say: "can't be read"},
		"packed size": {why: "the archive is bounded", data: good, limits: Limits{PackBytes: 20}, kind: ErrTooLarge, say: "spec.ignore"},
		"size":        {why: "what it grows to is bounded", data: packed(t, plainFile("a", 1<<20)), limits: Limits{TreeBytes: 1 << 19}, kind: ErrTooLarge},
		"files":       {why: "so is the number of files", data: good, limits: Limits{Files: 2}, kind: ErrTooLarge},
		"unnamed":     {why: "folders count that are only in paths", data: packed(t, plainFile("a/b/c/d", 1)), limits: Limits{Files: 3}, kind: ErrTooLarge, say: "more than 3 files and folders"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tc.data) }))
			defer srv.Close()
			digest := tc.digest
			if digest == "" {
				sum := sha256.Sum256(tc.data)
				digest = "sha256:" + hex.EncodeToString(sum[:])
			}
			tree, err := Artifact{URL: srv.URL + "/a.tar.gz", Digest: digest, Limits: tc.limits}.Get(t.Context(), tc.dir)
			if tc.kind != nil {
				if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.say) {
					t.Errorf("%s: got %v, want %v with %q", tc.why, err, tc.kind, tc.say)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			files := []string{"a.cue", "clusters/one/b.cue", "clusters/z"}
			if tc.dir != "" {
				files = []string{"one/b.cue", "z"}
			}
			if err := fstest.TestFS(tree, files...); err != nil {
				t.Error(err)
			}
			if data, err := fs.ReadFile(tree, files[0]); err != nil || strings.Trim(string(data), "x") != "" || len(data) == 0 {
				t.Errorf("read %q, %v", data, err)
			}
		})
	}
}

func TestArtifactServers(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			http.NotFound(w, r)
		case "/moved":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		case "/cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("x"))
		}
	}))
	defer srv.Close()
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for at, say := range map[string]string{
		srv.URL + "/gone": "gone", srv.URL + "/moved": "status 302", srv.URL + "/cut": "EOF", srv.URL + "/slow": "deadline",
		"http://127.0.0.1:1/x": "refused", "file:///etc/passwd": ErrURL.Error(), "http://u:secret@127.0.0.1/x": ErrURL.Error(),
	} {
		ctx := t.Context()
		if strings.HasSuffix(at, "/slow") {
			ctx = brief
		}
		_, err := Artifact{URL: at, Digest: "sha256:" + strings.Repeat("0", 64)}.Get(ctx, "")
		if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v doesn't say %q", at, err, say)
		}
	}
}

// TestRedirects: credentials stay at the address that they were given for.
func TestRedirects(t *testing.T) {
	s := newServer(t)
	s.commit("main", map[string]entry{"a": file("a")})
	var sent []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	var to string
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	defer door.Close()
	r := s.remote()
	r.URL, to = door.URL+"/fleet.git", elsewhere.URL
	_, err := r.Head(t.Context(), Ref{})
	if !errors.Is(err, ErrRedirect) || !strings.Contains(err.Error(), strings.TrimPrefix(elsewhere.URL, "http://")) {
		t.Errorf("got %v", err)
	}
	if len(sent) > 0 {
		t.Errorf("it was followed, with %q", sent)
	}
	r.Auth = Auth{}
	if _, err := r.Head(t.Context(), Ref{}); errors.Is(err, ErrRedirect) {
		t.Errorf("a redirect without credentials isn't followed: %v", err)
	}
	if len(sent) != 1 || sent[0] != "" {
		t.Errorf("%q was sent along", sent)
	}
	r.URL = "http://git.example.com/x.git"
	for _, r.Auth = range []Auth{{Token: "t0ken"}, {Username: "ada", Password: "s3cret"}, {Username: "t0ken"}} {
		if _, err := r.Head(t.Context(), Ref{}); !errors.Is(err, ErrPlain) {
			t.Errorf("credentials in the clear: %v", err)
		}
	}
}
