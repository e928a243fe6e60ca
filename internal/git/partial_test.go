package git

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/storage/memory"
	"github.com/google/go-cmp/cmp"
)

// TestFetchFolder has a server that leaves out what isn't asked for, one that
// leaves out but doesn't hand out by hash, and one that knows neither.
func TestFetchFolder(t *testing.T) {
	for name, tc := range map[string]struct {
		why    string
		config []string
		files  int
	}{
		"partial":  {"only the folder's files travel", []string{"uploadpack.allowFilter=true", "uploadpack.allowReachableSHA1InWant=true"}, 2},
		"any":      {"servers say so in several ways", []string{"uploadpack.allowFilter=true", "uploadpack.allowAnySHA1InWant=true"}, 2},
		"no wants": {"a server that hands out no single files is asked for all", []string{"uploadpack.allowFilter=true"}, 4},
		"plain":    {"a server that can't leave files out sends all", nil, 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			for _, kv := range tc.config {
				key, value, _ := strings.Cut(kv, "=")
				s.git("config", key, value)
			}
			s.commit("main", map[string]entry{
				"clusters/one/pool.cue": file("package one\n"), "clusters/one/a/b.cue": file("package a\n"),
				"clusters/two/pool.cue": file("package two\n"), "media/x": file("x"),
			})
			rev, err := s.remote().Head(t.Context(), Ref{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.remote().FetchFolder(t.Context(), rev, "clusters/one")
			if err != nil {
				t.Fatal(err)
			}
			if n := len(c.store.(*memory.Storage).Blobs); n != tc.files {
				t.Errorf("%s: %d files travelled, want %d", tc.why, n, tc.files)
			}
			tree, err := c.FS("clusters/one")
			if err != nil {
				t.Fatal(err)
			}
			if text, err := fs.ReadFile(tree, "a/b.cue"); err != nil || string(text) != "package a\n" {
				t.Errorf("read %q, %v", text, err)
			}
			if _, err := s.remote().FetchFolder(t.Context(), rev, "no/such"); err != nil {
				t.Errorf("a folder that isn't there is for FS to tell of: %v", err)
			}
			if _, err := s.remote().FetchFolder(t.Context(), rev, "../x"); err == nil {
				t.Error("a folder outside the repository was fetched")
			}
		})
	}
}

func TestAncestry(t *testing.T) {
	for _, filter := range []string{"true", "false"} {
		t.Run("filter "+filter, func(t *testing.T) {
			s := newServer(t)
			s.git("config", "uploadpack.allowFilter", filter)
			var line []string
			for i := range 5 {
				line = append(line, s.commit("main", map[string]entry{"n": file(strconv.Itoa(i)), "big": file(strings.Repeat("x", 1000))}))
			}
			fork := s.commit("fork", map[string]entry{"n": file("other")})
			tree := s.git("rev-parse", fork+"^{tree}")
			merge := s.git("commit-tree", tree, "-m", "merge", "-p", fork, "-p", line[4])
			s.git("update-ref", "refs/heads/merge", merge)
			side := s.git("commit-tree", tree, "-m", "rewritten", "-p", line[1])
			s.git("update-ref", "refs/heads/side", side)
			for name, tc := range map[string]struct {
				why        string
				head, base string
				want       Ancestry
			}{
				"same":      {"a commit holds itself", line[4], line[4], Descends},
				"child":     {"the common case", line[4], line[3], Descends},
				"far":       {"several commits between two looks", line[4], line[0], Descends},
				"merged":    {"a merge holds both sides", merge, line[2], Descends},
				"back":      {"a branch that was set back", line[1], line[4], Unrelated},
				"rewritten": {"the common part doesn't make it a descendant", side, line[4], Unrelated},
				"other":     {"another history", fork, line[4], Unrelated},
				"gone":      {"a commit that the server no longer has", line[4], strings.Repeat("a", 40), Unrelated},
			} {
				got, err := s.remote().Ancestry(t.Context(), tc.head, tc.base)
				if err != nil || got != tc.want {
					t.Errorf("%s: %s: %d (%v), want %d", name, tc.why, got, err, tc.want)
				}
			}
			rev, err := s.remote().Head(t.Context(), Ref{Branch: "merge"})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.remote().Fetch(t.Context(), rev)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{fork, line[4]}, c.Parents()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// peak runs fn and returns by how many bytes the heap that the system gave was
// larger at its largest.
func peak(fn func()) uint64 {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var most uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	fn()
	close(stop)
	<-done
	return most - min(most, before.HeapInuse)
}

// TestHugeRepository has much that nobody asked for: 1 GB with
// COPPICE_HUGE_MB=1024, less otherwise. Git serves it from a process of its own,
// so that only what the client takes is measured.
func TestHugeRepository(t *testing.T) {
	mb := 96
	if text := os.Getenv("COPPICE_HUGE_MB"); text != "" {
		var err error
		if mb, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		mb = 40
	}
	s := newServer(t)
	entries := map[string]entry{"clusters/one/pool.cue": file("package one\n")}
	// Random, so that no compression makes it small.
	noise := rand.NewChaCha8([32]byte{1})
	block := make([]byte, 8<<20)
	for i := range mb / 8 {
		_, _ = noise.Read(block)
		path := filepath.Join(s.root, "block")
		if err := os.WriteFile(path, block, 0o600); err != nil {
			t.Fatal(err)
		}
		entries[fmt.Sprintf("media/%d", i)] = entry{mode: "160000", content: s.git("-c", "core.compression=0", "hash-object", "-w", path)}
	}
	hash := s.commitAs(entries)
	s.git("config", "core.bigFileThreshold", "1m")
	rev := Revision{Ref: "main", Hash: hash}
	const bound = 200 << 20

	s.git("config", "uploadpack.allowFilter", "true")
	s.git("config", "uploadpack.allowAnySHA1InWant", "true")
	var err error
	var c *Commit
	used := peak(func() { c, err = s.remote().FetchFolder(t.Context(), rev, "clusters/one") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.FS("clusters/one"); err != nil {
		t.Error(err)
	}
	t.Logf("%d MB of other files, left out: %d KiB", mb, used>>10)
	if used > 16<<20 {
		t.Errorf("files that nobody asked for took memory: %d MiB", used>>20)
	}

	s.git("config", "uploadpack.allowFilter", "false")
	used = peak(func() { _, err = s.remote().FetchFolder(t.Context(), rev, "clusters/one") })
	if err == nil || !strings.Contains(err.Error(), ErrTooLarge.Error()) {
		t.Errorf("got %v", err)
	}
	t.Logf("%d MB of other files, refused: %d KiB: %v", mb, used>>10, err)
	if used > bound {
		t.Errorf("a repository that is refused took %d MiB first", used>>20)
	}
}

// TestLargestFetch takes the most memory that a fetch may: a pack and a tree at
// their limits.
func TestLargestFetch(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 60 MB of files")
	}
	s := newServer(t)
	entries := map[string]entry{}
	noise := rand.NewChaCha8([32]byte{2})
	for i := range 60 {
		// Half of each file compresses to nothing.
		block := make([]byte, 1<<20)
		_, _ = noise.Read(block[:len(block)/2])
		path := filepath.Join(s.root, "block")
		if err := os.WriteFile(path, block, 0o600); err != nil {
			t.Fatal(err)
		}
		entries[fmt.Sprintf("f%d", i)] = entry{mode: "160000", content: s.git("hash-object", "-w", path)}
	}
	rev := Revision{Ref: "main", Hash: s.commitAs(entries)}
	var err error
	used := peak(func() { _, err = s.remote().Fetch(t.Context(), rev) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a fetch of 60 MiB: %d MiB", used>>20)
	if used > 200<<20 {
		t.Errorf("a fetch within the limits took %d MiB", used>>20)
	}
}

// commitAs commits entries whose content is a hash as plain files.
func (s *server) commitAs(entries map[string]entry) string {
	s.t.Helper()
	s.git("read-tree", "--empty")
	var index strings.Builder
	for name, e := range entries {
		hash := e.content
		if e.mode != "160000" {
			hash = s.gitIn(e.content, "hash-object", "-w", "--stdin")
		}
		index.WriteString("100644 " + hash + "\t" + name + "\n")
	}
	s.gitIn(index.String(), "update-index", "--add", "--index-info")
	hash := s.git("commit-tree", s.git("write-tree"), "-m", "huge")
	s.git("update-ref", "refs/heads/main", hash)
	return hash
}
