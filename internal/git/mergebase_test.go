package git

import (
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

func TestMergeBase(t *testing.T) {
	dir := t.TempDir()
	repo, err := gogit.PlainInit(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := repo.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	commit := func(parents ...plumbing.Hash) plumbing.Hash {
		t.Helper()
		hash, err := tree.Commit(strings.Repeat("x", len(parents)+1), &gogit.CommitOptions{
			AllowEmptyCommits: true, Parents: parents, Author: &object.Signature{Name: "Ada", When: time.Unix(int64(len(parents)), 0)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	start := commit()
	ours := commit(start)
	theirs := commit(start, ours)
	local, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ a, b, want plumbing.Hash }{{start, ours, start}, {ours, theirs, ours}, {theirs, theirs, theirs}} {
		if got, err := local.MergeBase(tt.a.String(), tt.b.String()); err != nil || got != tt.want.String() {
			t.Errorf("MergeBase(%s, %s) = %s, %v; want %s", tt.a, tt.b, got, err, tt.want)
		}
	}
	// A clone that doesn't reach back to the beginning.
	graft := func(parent plumbing.Hash) plumbing.Hash {
		t.Helper()
		c, err := repo.CommitObject(start)
		if err != nil {
			t.Fatal(err)
		}
		c.ParentHashes = []plumbing.Hash{parent}
		raw := repo.Storer.NewEncodedObject()
		if err := c.Encode(raw); err != nil {
			t.Fatal(err)
		}
		hash, err := repo.Storer.SetEncodedObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	cut := graft(plumbing.NewHash(strings.Repeat("cd", 20)))
	next := graft(cut)
	other := graft(plumbing.NewHash(strings.Repeat("ef", 20)))
	for _, ends := range [][2]plumbing.Hash{{next, cut}, {cut, next}} {
		if got, err := local.MergeBase(ends[0].String(), ends[1].String()); err != nil || got != cut.String() {
			t.Errorf("MergeBase(%s, %s) = %s, %v; want %s", ends[0], ends[1], got, err, cut)
		}
	}
	if got, err := local.MergeBase(next.String(), other.String()); err == nil {
		t.Errorf("what isn't known is said to be %s", got)
	}
	if got, err := local.Parents(other.String()); err != nil || len(got) != 1 || got[0] != strings.Repeat("ef", 20) {
		t.Errorf("parents %v, %v", got, err)
	}
	for _, name := range []string{strings.Repeat("ab", 20), "nowhere"} {
		if got, err := local.MergeBase("HEAD", name); err == nil {
			t.Errorf("MergeBase with %s = %s", name, got)
		}
	}
}
