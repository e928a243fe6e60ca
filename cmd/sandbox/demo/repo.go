package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-billy/v5/util"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/coppice-dev/coppice/internal/testkit/endpoints"
	"github.com/coppice-dev/coppice/internal/testkit/gitserver"
)

const (
	repoName   = "fleet"
	mainBranch = plumbing.ReferenceName("refs/heads/main")
	// driftBranch is where the source is told to report.
	driftBranch = plumbing.ReferenceName("refs/heads/coppice/drift")
)

// author is a person with a clone.
type author struct {
	name, email string
	auth        *githttp.BasicAuth
	repo        *git.Repository
}

// newAuthor gives a person a new repository, empty, whose origin is the server's.
func newAuthor(e endpoints.Endpoints) (*author, error) {
	repo, err := git.InitWithOptions(memory.NewStorage(), memfs.New(), git.InitOptions{DefaultBranch: mainBranch})
	if err != nil {
		return nil, fmt.Errorf("make a repository: %w", err)
	}
	if _, err := repo.CreateRemote(&config.RemoteConfig{Name: "origin", URLs: []string{e.Repo(repoName)}}); err != nil {
		return nil, fmt.Errorf("add the remote: %w", err)
	}
	return &author{
		name: "Ada", email: "ada@example.com", repo: repo,
		auth: &githttp.BasicAuth{Username: e.GitUsername, Password: e.GitPassword},
	}, nil
}

// add puts a folder from disk into the clone.
func (a *author) add(dir string) error {
	tree, err := a.repo.Worktree()
	if err != nil {
		return fmt.Errorf("open the clone: %w", err)
	}
	root := os.DirFS(dir)
	return fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return a.write(tree, name, data)
	})
}

func (a *author) write(tree *git.Worktree, name string, data []byte) error {
	if err := util.WriteFile(tree.Filesystem, name, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := tree.Add(name); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return nil
}

// edit is a change of one file: a text that must be there, and what takes its
// place. With an empty old text the file is made.
type edit struct{ file, old, new string }

// change makes edits and returns them as lines of a diff.
func (a *author) change(edits ...edit) (string, error) {
	tree, err := a.repo.Worktree()
	if err != nil {
		return "", fmt.Errorf("open the clone: %w", err)
	}
	var diff strings.Builder
	for _, e := range edits {
		text := e.new
		if e.old != "" {
			data, err := util.ReadFile(tree.Filesystem, e.file)
			if err != nil {
				return "", fmt.Errorf("read %s: %w", e.file, err)
			}
			if strings.Count(string(data), e.old) != 1 {
				return "", fmt.Errorf("%s does not hold %q once, which this demo changes", e.file, e.old)
			}
			text = strings.Replace(string(data), e.old, e.new, 1)
		}
		if err := a.write(tree, e.file, []byte(text)); err != nil {
			return "", err
		}
		if e.old == "" {
			fmt.Fprintf(&diff, "%s (new, %d lines)\n", e.file, strings.Count(e.new, "\n"))
			continue
		}
		fmt.Fprintf(&diff, "%s\n", e.file)
		marks := []struct{ mark, text string }{{"-", e.old}, {"+", e.new}}
		for _, m := range marks {
			for _, line := range strings.Split(m.text, "\n") {
				if line = strings.TrimSpace(line); line != "" {
					fmt.Fprintf(&diff, "  %s %s\n", m.mark, line)
				}
			}
		}
	}
	return diff.String(), nil
}

// push commits what was changed and pushes it.
func (a *author) push(ctx context.Context, message string) (plumbing.Hash, error) {
	tree, err := a.repo.Worktree()
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("open the clone: %w", err)
	}
	hash, err := tree.Commit(message, &git.CommitOptions{Author: &object.Signature{Name: a.name, Email: a.email, When: time.Now()}})
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("commit: %w", err)
	}
	spec := config.RefSpec(mainBranch + ":" + mainBranch)
	if err := a.repo.PushContext(ctx, &git.PushOptions{Auth: a.auth, RefSpecs: []config.RefSpec{spec}}); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("push: %w", err)
	}
	return hash, nil
}

// history lists a branch of the server's repository as git log --oneline would,
// the newest first. A branch that isn't there has none.
func history(srv *gitserver.Server, branch plumbing.ReferenceName) ([]string, error) {
	repo, err := srv.Open(repoName)
	if err != nil {
		return nil, err
	}
	ref, err := repo.Reference(branch, true)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", branch, err)
	}
	iter, err := repo.Log(&git.LogOptions{From: ref.Hash()})
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", branch, err)
	}
	var out []string
	err = iter.ForEach(func(c *object.Commit) error {
		subject, _, _ := strings.Cut(c.Message, "\n")
		out = append(out, fmt.Sprintf("%.7s %s (%s)", c.Hash, subject, c.Author.Name))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", branch, err)
	}
	return out, nil
}

// reports returns the files of a commit's tree other than README.md, by name.
func reports(srv *gitserver.Server, commit plumbing.Hash) (map[string]string, error) {
	repo, err := srv.Open(repoName)
	if err != nil {
		return nil, err
	}
	c, err := repo.CommitObject(commit)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", commit, err)
	}
	files, err := c.Files()
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", commit, err)
	}
	out := map[string]string{}
	err = files.ForEach(func(f *object.File) error {
		if path.Ext(f.Name) == ".md" {
			return nil // the readme, and the same report for people
		}
		text, err := f.Contents()
		out[f.Name] = text
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", commit, err)
	}
	return out, nil
}

// pushes keeps what the server took.
type pushes struct {
	stop func()

	mu   sync.Mutex
	seen []gitserver.Push
	wake chan struct{}
}

func watchPushes(srv *gitserver.Server) *pushes {
	p := &pushes{wake: make(chan struct{})}
	p.stop = srv.Watch(func(push gitserver.Push) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen = append(p.seen, push)
		close(p.wake)
		p.wake = make(chan struct{})
	})
	return p
}

func (p *pushes) close() { p.stop() }

// count is how often a branch was pushed to.
func (p *pushes) count(ref plumbing.ReferenceName) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(p.seen), func(s gitserver.Push) bool { return s.Ref != ref }))
}

// after waits for a push to a branch that comes after the first n.
func (p *pushes) after(ctx context.Context, ref plumbing.ReferenceName, n int) (gitserver.Push, error) {
	for {
		p.mu.Lock()
		wake, left := p.wake, n
		for _, s := range p.seen {
			if s.Ref != ref {
				continue
			}
			if left == 0 {
				p.mu.Unlock()
				return s, nil
			}
			left--
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return gitserver.Push{}, fmt.Errorf("wait for a push to %s: %w", ref.Short(), context.Cause(ctx))
		case <-wake:
		}
	}
}
