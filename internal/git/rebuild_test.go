package git

import (
	"errors"
	"strings"
	"testing"
)

// TestRebuild keeps a branch of one commit on top of main, whatever becomes of either,
// and never throws away what somebody else has pushed.
func TestRebuild(t *testing.T) {
	for name, config := range map[string][]string{"partial": {"uploadpack.allowFilter=true", "uploadpack.allowAnySHA1InWant=true"}, "plain": {"uploadpack.allowReachableSHA1InWant=true"}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			for _, kv := range config {
				key, value, _ := strings.Cut(kv, "=")
				s.git("config", key, value)
			}
			first := s.commit("main", map[string]entry{"deploy/a.cue": file("a: 1\n"), "deploy/b.cue": file("b: 1\n"), "media/x": file("x")})
			r, ctx := s.remote(), t.Context()
			w := testWrite(map[string]string{"deploy/a.cue": "a: 2\n"})
			w.Branch, w.Seed = "coppice/adopt/one", nil
			if tip, err := r.Tip(ctx, w.Branch); err != nil || tip.Hash != "" {
				t.Fatalf("no branch: %+v, %v", tip, err)
			}
			made, err := r.Rebuild(ctx, w, first, "")
			if err != nil || !made.Changed {
				t.Fatalf("begin: %+v, %v", made, err)
			}
			tip, err := r.Tip(ctx, w.Branch)
			if err != nil || tip.Hash != made.Hash || tip.Message != w.Message || tip.Author != w.Author || tip.Committer != w.Author || len(tip.Parents) != 1 || tip.Parents[0] != first {
				t.Errorf("tip: %+v, %v", tip, err)
			}
			if got := s.git("show", w.Branch+":deploy/a.cue") + s.git("show", w.Branch+":deploy/b.cue") + s.git("show", w.Branch+":media/x"); got != "a: 2b: 1x" {
				t.Errorf("the branch holds %q", got)
			}
			if again, err := r.Rebuild(ctx, w, first, made.Hash); err != nil || again.Changed || again.Hash != made.Hash {
				t.Errorf("again: %+v, %v", again, err)
			}

			// main goes on; the branch is made anew on top of it.
			second := s.commit("main", map[string]entry{"deploy/a.cue": file("a: 1\n"), "deploy/b.cue": file("b: 5\n"), "media/x": file("x")})
			moved, err := r.Rebuild(ctx, w, second, made.Hash)
			if err != nil || !moved.Changed || moved.Hash == made.Hash {
				t.Fatalf("move: %+v, %v", moved, err)
			}
			if got := s.git("show", w.Branch+":deploy/a.cue") + s.git("show", w.Branch+":deploy/b.cue"); got != "a: 2b: 5" {
				t.Errorf("the branch holds %q", got)
			}
			if n := s.git("rev-list", "--count", "main.."+w.Branch); n != "1" {
				t.Errorf("it has %s commits of its own", n)
			}

			// Somebody else's commit stays.
			other := s.commit(w.Branch, map[string]entry{"deploy/a.cue": file("a: 3\n")})
			for why, over := range map[string]string{"as if it weren't there": "", "as it was": moved.Hash} {
				if out, err := r.Rebuild(ctx, w, second, over); !errors.Is(err, ErrConflict) {
					t.Errorf("%s: %+v, %v", why, out, err)
				}
			}
			if at, _ := s.tip(w.Branch); at != other {
				t.Errorf("the branch is at %s, want %s", at, other)
			}
			// What main holds already needs no branch.
			w.Branch, w.Files = "coppice/adopt/two", map[string][]byte{"deploy/b.cue": []byte("b: 5\n")}
			if out, err := r.Rebuild(ctx, w, second, ""); err != nil || out.Changed || out.Hash != "" {
				t.Errorf("nothing to do: %+v, %v", out, err)
			}
		})
	}
}
