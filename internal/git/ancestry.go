package git

import (
	"context"
	"errors"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Ancestry is how one commit relates to an earlier one.
type Ancestry uint8

const (
	// Unrelated: the history of the commit doesn't hold the other one.
	Unrelated Ancestry = iota
	// Descends: it does.
	Descends
	// TooFar: there is more history between them than is looked at.
	TooFar
)

// ancestryDepth is how many commits deep a history is looked at: years of commits,
// and with a filter about three megabytes.
const ancestryDepth = 10_000

// Parents returns the hashes of the commits that this one was made from. A commit
// made right on top of another needs no question to Remote.Ancestry.
func (c *Commit) Parents() []string {
	var out []string
	for _, h := range c.parents {
		out = append(out, h.String())
	}
	return out
}

// Ancestry says whether the commit head descends from base. It costs two requests,
// and what lies between the two commits: their messages alone if the server can
// leave the rest out.
func (r Remote) Ancestry(ctx context.Context, head, base string) (Ancestry, error) {
	if head == base {
		return Descends, nil
	}
	conv, err := r.openRead(ctx)
	if err != nil {
		return Unrelated, r.fail(ctx, "compare", err)
	}
	defer conv.close()
	from, to := plumbing.NewHash(base), plumbing.NewHash(head)
	store := memory.NewStorage()
	said, err := conv.ask(ctx, store, request{
		wants: []plumbing.Hash{to}, haves: []plumbing.Hash{from}, depth: ancestryDepth, filter: withoutTrees,
	})
	if errors.Is(err, errLimit) {
		return TooFar, nil
	}
	if err != nil {
		return Unrelated, r.fail(ctx, "compare", err)
	}
	// The server says what base lacks. If base is on the way, it is reached by these
	// commits; if head lies before base, there is none at all. What else a pack holds
	// proves nothing.
	seen := map[plumbing.Hash]bool{to: true}
	for next := []plumbing.Hash{to}; len(next) > 0; {
		obj, ok := store.Commits[next[len(next)-1]]
		next = next[:len(next)-1]
		if !ok {
			continue // the server knows that base has it
		}
		c, err := object.DecodeCommit(store, obj)
		if err != nil {
			return Unrelated, r.fail(ctx, "compare", err)
		}
		for _, parent := range c.ParentHashes {
			if parent == from {
				return Descends, nil
			}
			if !seen[parent] {
				seen[parent] = true
				next = append(next, parent)
			}
		}
	}
	if len(said.cut) > 0 && slices.Contains(said.known, from) {
		return TooFar, nil
	}
	return Unrelated, nil
}
