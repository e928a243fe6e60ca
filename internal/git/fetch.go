package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/storage/memory"
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
	defer conv.close()
	if ref.SemVer != "" && ref.Name == "" {
		ref.Tag, err = highest(ref.SemVer, slices.Collect(maps.Keys(conv.adv.References)))
		if err != nil {
			return Revision{}, r.failKind("list", ErrRef, fmt.Sprintf("%q is no range of versions: %s", ref.SemVer, err))
		}
		if ref.Tag == "" {
			return Revision{}, r.failKind("list", ErrRef, fmt.Sprintf("no tag names a version in the range %q", ref.SemVer))
		}
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
		return Revision{Ref: short, Hash: peeled.String(), Tag: hash.String()}, nil
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
	return r.FetchFolder(ctx, rev, ".")
}

// FetchFolder does as Fetch, but of the files only those in a folder are sure to
// be there, so that Commit.FS may be asked for that folder and those in it. If the
// server can leave files out (partial clone), the others don't travel at all.
func (r Remote) FetchFolder(ctx context.Context, rev Revision, dir string) (*Commit, error) {
	clean, err := cleanDir(dir)
	if err != nil {
		return nil, r.failKind("fetch", ErrTree, err.Error())
	}
	conv, err := r.openRead(ctx)
	if err != nil {
		return nil, r.fail(ctx, "fetch", err)
	}
	defer conv.close()
	hash := plumbing.NewHash(rev.Hash)
	wants := []plumbing.Hash{hash}
	if rev.Tag != "" {
		wants = append(wants, plumbing.NewHash(rev.Tag))
	}
	store, err := conv.snapshot(ctx, wants, clean)
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
		parents:   c.ParentHashes,
		tree:      tree,
		store:     store,
		limits:    r.Limits.withDefaults(),
		remote:    RedactURL(r.URL),
	}, nil
}

// snapshot gets one commit (the first want), its tree and the tags among the
// wants, without parents, and at least the files of a folder.
func (c *reading) snapshot(ctx context.Context, wants []plumbing.Hash, dir string) (*memory.Storage, error) {
	store := memory.NewStorage()
	if dir == "." || !c.partial() {
		return store, c.get(ctx, store, request{wants: wants, depth: 1})
	}
	if err := c.get(ctx, store, request{wants: wants, depth: 1, filter: withoutFiles}); err != nil {
		return nil, err
	}
	missing, err := filesIn(store, wants[0], dir, c.remote.Limits.withDefaults().Files)
	if err != nil || len(missing) == 0 {
		return store, err
	}
	err = c.get(ctx, store, request{wants: missing})
	if err != nil && ctx.Err() == nil && !errors.Is(err, errLimit) {
		// It leaves files out, but doesn't hand them out one by one either.
		store = memory.NewStorage()
		return store, c.get(ctx, store, request{wants: wants, depth: 1})
	}
	return store, err
}

// filesIn lists the files in a folder of a commit, each content once and in order.
// A folder that isn't there has none; Commit.FS says so.
func filesIn(store *memory.Storage, commit plumbing.Hash, dir string, limit int) ([]plumbing.Hash, error) {
	c, err := object.GetCommit(store, commit)
	if err != nil {
		return nil, err
	}
	root, err := c.Tree()
	if err != nil {
		return nil, err
	}
	if root, err = root.Tree(dir); err != nil {
		return nil, nil
	}
	var out []plumbing.Hash
	seen := map[plumbing.Hash]bool{}
	var walk func(*object.Tree, int) error
	walk = func(tree *object.Tree, depth int) error {
		for _, e := range tree.Entries {
			switch {
			case seen[e.Hash]:
			case len(seen) >= limit || depth > maxDepth:
				return fmt.Errorf("%w: more than %d files, or folders nest deeper than %d", errLimit, limit, maxDepth)
			case e.Mode.IsFile():
				seen[e.Hash] = true
				out = append(out, e.Hash)
			case e.Mode == filemode.Dir:
				seen[e.Hash] = true
				if sub, err := object.GetTree(store, e.Hash); err == nil {
					if err := walk(sub, depth+1); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	return out, walk(root, 0)
}
