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
	for _, name := range []string{strings.Repeat("ab", 20), "nowhere"} {
		if got, err := local.MergeBase("HEAD", name); err == nil {
			t.Errorf("MergeBase with %s = %s", name, got)
		}
	}
}
