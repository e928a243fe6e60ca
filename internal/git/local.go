package git

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
)

// Local is a clone on this machine's disk. It is only read.
type Local struct {
	repo *gogit.Repository
	// Path is the folder that was opened, as a path inside of the clone, "." for its
	// root.
	Path string
}

// ErrNoClone says that a folder isn't part of a clone.
var ErrNoClone = errors.New("not a Git clone")

// Open finds the clone that a folder is part of. Its error wraps ErrNoClone if there
// is none.
func Open(dir string) (*Local, error) {
	repo, err := gogit.PlainOpenWithOptions(dir, &gogit.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if errors.Is(err, gogit.ErrRepositoryNotExists) {
		return nil, fmt.Errorf("open %s: %w", dir, ErrNoClone)
	}
	if err != nil {
		return nil, fmt.Errorf("open the clone around %s: %w", dir, err)
	}
	tree, err := repo.Worktree()
	if err != nil {
		return nil, fmt.Errorf("open the clone around %s: %w", dir, err)
	}
	root, err := filepath.EvalSymlinks(tree.Filesystem.Root())
	if err != nil {
		return nil, fmt.Errorf("open the clone around %s: %w", dir, err)
	}
	at, err := filepath.Abs(dir)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err == nil {
		at, err = filepath.Rel(root, at)
	}
	if err != nil {
		return nil, fmt.Errorf("find %s in its clone: %w", dir, err)
	}
	return &Local{repo: repo, Path: filepath.ToSlash(at)}, nil
}

// Commit returns the commit that a name stands for, as in HEAD, main, v1.2, a hash or
// its beginning, HEAD~2.
func (l *Local) Commit(name string) (*Commit, error) {
	hash, err := l.repo.ResolveRevision(plumbing.Revision(name))
	if err != nil {
		return nil, fmt.Errorf("find commit %q in the clone: %w", name, err)
	}
	c, err := l.repo.CommitObject(*hash)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", name, err)
	}
	tree, err := c.Tree()
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", name, err)
	}
	subject, _, _ := strings.Cut(c.Message, "\n")
	return &Commit{
		Revision:  Revision{Hash: hash.String()},
		Author:    Identity{Name: c.Author.Name, Email: c.Author.Email},
		Committer: Identity{Name: c.Committer.Name, Email: c.Committer.Email},
		When:      c.Committer.When.UTC(),
		Subject:   subject,
		tree:      tree, store: l.repo.Storer, limits: Limits{}.withDefaults(), remote: "the clone",
	}, nil
}

// Parents returns the hashes of a commit's parents, which a shallow clone may not have.
func (l *Local) Parents(name string) ([]string, error) {
	hash, err := l.repo.ResolveRevision(plumbing.Revision(name))
	if err != nil {
		return nil, fmt.Errorf("find commit %q in the clone: %w", name, err)
	}
	c, err := l.repo.CommitObject(*hash)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", name, err)
	}
	var out []string
	for _, p := range c.ParentHashes {
		out = append(out, p.String())
	}
	return out, nil
}

// Edited returns the first of the files that count which a folder holds otherwise than a
// commit's does, and "" if there is none. Hidden folders don't count.
func Edited(dir, committed fs.FS, counts func(name string) bool) (string, error) {
	a, err := texts(dir, counts)
	if err != nil {
		return "", err
	}
	b, err := texts(committed, counts)
	if err != nil {
		return "", err
	}
	var names []string
	for name, text := range a {
		if other, ok := b[name]; !ok || !bytes.Equal(text, other) {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return slices.Min(names), nil
}

func texts(dir fs.FS, counts func(name string) bool) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && d.Name() != ".coppice-modules" && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.Type().IsRegular() || !counts(name):
			return nil
		}
		text, err := fs.ReadFile(dir, name)
		out[name] = text
		return err
	})
	return out, err
}
