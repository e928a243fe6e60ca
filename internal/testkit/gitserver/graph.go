package gitserver

import (
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// graph finds the objects that a client lacks.
type graph struct {
	store storer.Storer
	wants []plumbing.Hash
	// clientShallow are the commits whose parents the client lacks.
	clientShallow map[plumbing.Hash]bool
	// depth bounds the history that is sent; 0 means all of it.
	depth int

	// cut are the commits at that depth, whose parents are not sent.
	cut map[plumbing.Hash]bool
	// reopened are clientShallow commits whose parents are sent now.
	reopened map[plumbing.Hash]bool
	// omit is what isn't sent unless it is wanted by name.
	omit omission
}

// checkWants refuses objects that the repository doesn't have.
func (g *graph) checkWants() error {
	iter, err := g.store.IterReferences()
	if err != nil {
		return fmt.Errorf("list references: %w", err)
	}
	named := map[plumbing.Hash]bool{}
	if err := iter.ForEach(func(ref *plumbing.Reference) error {
		named[ref.Hash()] = true
		return nil
	}); err != nil {
		return fmt.Errorf("list references: %w", err)
	}
	for _, want := range g.wants {
		if named[want] {
			continue
		}
		// A reference may have moved since it was advertised, and a partial clone
		// asks for files one by one.
		if err := g.store.HasEncodedObject(want); err != nil {
			return fmt.Errorf("upload-pack: not our ref %s", want)
		}
	}
	return nil
}

// boundary finds the commits at which a history of the wanted depth ends, and
// those of the client's that are no longer an end.
func (g *graph) boundary() (shallow, unshallow []plumbing.Hash, err error) {
	g.cut, g.reopened = map[plumbing.Hash]bool{}, map[plumbing.Hash]bool{}
	level, err := g.commits(g.wants)
	if err != nil {
		return nil, nil, err
	}
	seen := map[plumbing.Hash]bool{}
	for depth := 1; len(level) > 0; depth++ {
		var next []plumbing.Hash
		for _, h := range level {
			if seen[h] {
				continue
			}
			seen[h] = true
			c, err := object.GetCommit(g.store, h)
			if err != nil {
				return nil, nil, fmt.Errorf("read commit %s: %w", h, err)
			}
			if len(c.ParentHashes) == 0 {
				continue
			}
			if depth >= g.depth {
				g.cut[h] = true
				continue
			}
			if g.clientShallow[h] {
				g.reopened[h] = true
			}
			next = append(next, c.ParentHashes...)
		}
		level = next
	}
	return sortedHashes(g.cut), sortedHashes(g.reopened), nil
}

// objects lists what a client lacks that has the given commits, in an order that
// depends on the repository alone.
func (g *graph) objects(common []plumbing.Hash) ([]plumbing.Hash, error) {
	have, err := g.history(common, g.clientShallow)
	if err != nil {
		return nil, err
	}
	sent := map[plumbing.Hash]bool{}
	// The trees of the commits that both sides named are enough to leave out
	// what did not change; an older object that came back is sent again, which
	// costs bytes but no correctness.
	start, err := g.commits(common)
	if err != nil {
		return nil, err
	}
	for _, h := range start {
		c, err := object.GetCommit(g.store, h)
		if err != nil {
			return nil, fmt.Errorf("read commit %s: %w", h, err)
		}
		if err := g.tree(c.TreeHash, sent, nil); err != nil {
			return nil, err
		}
	}

	var out []plumbing.Hash
	add := func(h plumbing.Hash) { out = append(out, h) }
	var commits []plumbing.Hash
	for _, h := range g.wants {
		if _, err := g.store.EncodedObject(plumbing.BlobObject, h); err == nil {
			add(h)
			continue
		}
		if _, err := g.store.EncodedObject(plumbing.TreeObject, h); err == nil {
			if err := g.tree(h, sent, add); err != nil {
				return nil, err
			}
			continue
		}
		commits = append(commits, h)
	}
	todo, err := g.unwrap(commits, sent, add)
	if err != nil {
		return nil, err
	}
	for h := range g.reopened {
		c, err := object.GetCommit(g.store, h)
		if err != nil {
			return nil, fmt.Errorf("read commit %s: %w", h, err)
		}
		todo = append(todo, c.ParentHashes...)
	}
	for len(todo) > 0 {
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if sent[h] || have[h] {
			continue
		}
		sent[h] = true
		c, err := object.GetCommit(g.store, h)
		if err != nil {
			return nil, fmt.Errorf("read commit %s: %w", h, err)
		}
		add(h)
		if g.omit != omitTrees {
			if err := g.tree(c.TreeHash, sent, add); err != nil {
				return nil, err
			}
		}
		if !g.cut[h] {
			todo = append(todo, c.ParentHashes...)
		}
	}
	return out, nil
}

// history is the set of commits that can be reached from some without passing an end.
func (g *graph) history(from []plumbing.Hash, ends map[plumbing.Hash]bool) (map[plumbing.Hash]bool, error) {
	todo, err := g.commits(from)
	if err != nil {
		return nil, err
	}
	seen := map[plumbing.Hash]bool{}
	for len(todo) > 0 {
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[h] {
			continue
		}
		seen[h] = true
		if ends[h] {
			continue
		}
		c, err := object.GetCommit(g.store, h)
		if err != nil {
			return nil, fmt.Errorf("read commit %s: %w", h, err)
		}
		todo = append(todo, c.ParentHashes...)
	}
	return seen, nil
}

// commits resolves tags to the commits that they name.
func (g *graph) commits(hashes []plumbing.Hash) ([]plumbing.Hash, error) {
	return g.unwrap(hashes, map[plumbing.Hash]bool{}, func(plumbing.Hash) {})
}

// unwrap resolves tags to commits and reports each tag object on the way.
func (g *graph) unwrap(hashes []plumbing.Hash, sent map[plumbing.Hash]bool, add func(plumbing.Hash)) ([]plumbing.Hash, error) {
	var out []plumbing.Hash
	for _, h := range hashes {
		for {
			tag, err := object.GetTag(g.store, h)
			if errors.Is(err, plumbing.ErrObjectNotFound) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read tag %s: %w", h, err)
			}
			if !sent[h] {
				sent[h] = true
				add(h)
			}
			h = tag.Target
		}
		out = append(out, h)
	}
	return out, nil
}

// tree reports a tree and all below it, each object once.
func (g *graph) tree(h plumbing.Hash, sent map[plumbing.Hash]bool, add func(plumbing.Hash)) error {
	if sent[h] {
		return nil
	}
	sent[h] = true
	if add != nil {
		add(h)
	}
	t, err := object.GetTree(g.store, h)
	if err != nil {
		return fmt.Errorf("read tree %s: %w", h, err)
	}
	for _, e := range t.Entries {
		switch {
		case e.Mode == filemode.Submodule:
		case e.Mode == filemode.Dir:
			if err := g.tree(e.Hash, sent, add); err != nil {
				return err
			}
		case !sent[e.Hash]:
			sent[e.Hash] = true
			if add != nil && g.omit == omitNothing {
				add(e.Hash)
			}
		}
	}
	return nil
}
