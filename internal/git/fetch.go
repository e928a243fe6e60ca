package git

import (
	"context"
	"errors"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
)

// Head returns the commit that ref points to now. It costs one request and
// fetches nothing. A Ref with a commit is answered without any request, as it
// can't move.
func (r Remote) Head(ctx context.Context, ref Ref) (Revision, error) {
	if ref.Commit != "" {
		if !isHash(ref.Commit) {
			return Revision{}, r.failKind("resolve", ErrRef, "a commit is given by all 40 digits of its SHA-1")
		}
		return Revision{Ref: ref.Branch, Hash: ref.Commit}, nil
	}
	conv, err := r.openRead(ctx)
	if err != nil {
		return Revision{}, r.fail(ctx, "list", err)
	}
	name, short := ref.target()
	if name == "" {
		if name = conv.defaultBranch(); name == "" {
			return Revision{}, r.failKind("list", ErrRef, "the server names no default branch; name one in the ref")
		}
		short = strings.TrimPrefix(name, branchPrefix)
	}
	hash, ok := conv.adv.References[name]
	if !ok {
		return Revision{}, r.failKind("list", ErrRef, "looked for "+name)
	}
	// An annotated tag is an object of its own; the commit is what it peels to.
	if peeled, ok := conv.adv.Peeled[name]; ok {
		hash = peeled
	}
	return Revision{Ref: short, Hash: hash.String()}, nil
}

// defaultBranch returns the full name of what the repository's HEAD points to,
// or "".
func (c *reading) defaultBranch() string {
	for _, pair := range c.adv.Capabilities.Get(capability.SymRef) {
		if target, ok := strings.CutPrefix(pair, "HEAD:"); ok {
			return target
		}
	}
	return ""
}

// Fetch gets the commit of a revision that Head returned, with its tree and
// without its history.
func (r Remote) Fetch(ctx context.Context, rev Revision) (*Commit, error) {
	conv, err := r.openRead(ctx)
	if err != nil {
		return nil, r.fail(ctx, "fetch", err)
	}
	hash := plumbing.NewHash(rev.Hash)
	store, err := conv.commit(ctx, hash)
	if err != nil {
		return nil, r.fail(ctx, "fetch", err)
	}
	c, err := object.GetCommit(store, hash)
	if err != nil {
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil, r.failKind("fetch", ErrRef, "the server did not send commit "+rev.Hash)
		}
		return nil, r.fail(ctx, "fetch", err)
	}
	tree, err := c.Tree()
	if err != nil {
		return nil, r.fail(ctx, "fetch", err)
	}
	subject, _, _ := strings.Cut(c.Message, "\n")
	return &Commit{
		Revision:  rev,
		Author:    Identity{Name: c.Author.Name, Email: c.Author.Email},
		Committer: Identity{Name: c.Committer.Name, Email: c.Committer.Email},
		When:      c.Committer.When.UTC(),
		Subject:   subject,
		tree:      tree,
		store:     store,
		limits:    r.Limits.withDefaults(),
		remote:    RedactURL(r.URL),
	}, nil
}
