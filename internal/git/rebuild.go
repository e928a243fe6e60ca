package git

import (
	"context"
	"errors"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Tip is a branch's last commit, without its files. The zero Tip is that of a branch
// that isn't there.
type Tip struct {
	Hash              string
	Author, Committer Identity
	// Message is all of it.
	Message string
	// Parents are the hashes of the commits that it was made from.
	Parents []string
}

// Tip returns what a branch leads to.
func (r Remote) Tip(ctx context.Context, branch string) (Tip, error) {
	conv, err := r.openRead(ctx)
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return Tip{}, nil
	}
	if err != nil {
		return Tip{}, r.fail(ctx, "list", err)
	}
	defer conv.close()
	hash, ok := conv.adv.References[plumbing.NewBranchReferenceName(branch).String()]
	if !ok {
		return Tip{}, nil
	}
	c, err := conv.commit(ctx, memory.NewStorage(), hash, withoutTrees)
	if err != nil {
		return Tip{}, r.fail(ctx, "fetch", err)
	}
	out := Tip{
		Hash: hash.String(), Message: c.Message,
		Author: Identity{Name: c.Author.Name, Email: c.Author.Email}, Committer: Identity{Name: c.Committer.Name, Email: c.Committer.Email},
	}
	for _, p := range c.ParentHashes {
		out.Parents = append(out.Parents, p.String())
	}
	return out, nil
}

// commit gets one commit without its history, and without what a filter names if the
// server can leave that out.
func (c *reading) commit(ctx context.Context, store *memory.Storage, hash plumbing.Hash, filter packp.Filter) (*object.Commit, error) {
	ask := request{wants: []plumbing.Hash{hash}, depth: 1}
	if c.partial() {
		ask.filter = filter
	}
	if err := c.get(ctx, store, ask); err != nil {
		return nil, err
	}
	return object.GetCommit(store, hash)
}

// Rebuild makes a branch lead to one commit that stands on base, a full hash, and holds
// the wanted files beside those of base. It replaces the tip over, and no other: if the
// branch is elsewhere by now, its error is ErrConflict. An over of "" means that the
// branch isn't there yet. Nothing is pushed if base holds the files already.
//
// Unlike Push it throws a commit away. Callers make sure that it is their own.
func (r Remote) Rebuild(ctx context.Context, w Write, base, over string) (Pushed, error) {
	if err := w.validate(); err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	sess, adv, err := r.openWrite(ctx)
	if err != nil {
		return Pushed{}, err
	}
	defer func() { _ = sess.Close() }()
	branch := plumbing.NewBranchReferenceName(w.Branch)
	tip := adv.References[branch.String()]
	if hashText(tip) != over {
		return Pushed{Hash: hashText(tip)}, r.failKind("push", ErrConflict, "branch "+w.Branch)
	}
	conv, err := r.openRead(ctx)
	if err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	defer conv.close()
	b := builder{store: memory.NewStorage()}
	// Folders are needed to make new ones, the files in them aren't.
	c, err := conv.commit(ctx, b.store, plumbing.NewHash(base), withoutFiles)
	if err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	before, err := c.Tree()
	if err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	commit, err := b.commit(before, c.Hash, w)
	if err != nil {
		return Pushed{}, r.fail(ctx, "push", err)
	}
	if commit.IsZero() || commit == tip {
		return Pushed{Hash: hashText(tip), Tries: 1}, nil
	}
	out, err := r.land(ctx, sess, adv, b, &packp.Command{Name: branch, Old: tip, New: commit})
	out.Tries = 1
	return out, err
}
