package git

import (
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// MergeBase returns the hash of the last commit that two names have in common. Where the
// clone's history doesn't reach as far back, that is an error.
func (l *Local) MergeBase(a, b string) (string, error) {
	var ends [2]*object.Commit
	for i, name := range []string{a, b} {
		hash, err := l.repo.ResolveRevision(plumbing.Revision(name))
		if err != nil {
			return "", fmt.Errorf("find commit %q in the clone: %w", name, err)
		}
		if ends[i], err = l.repo.CommitObject(*hash); err != nil {
			return "", fmt.Errorf("read commit %s: %w", name, err)
		}
	}
	// A shallow clone tells at least of what it has: a commit that is reached from the
	// other is what both have, whatever lies before it.
	for i, from := range ends {
		if to := ends[1-i]; l.reaches(from, to.Hash) {
			return to.Hash.String(), nil
		}
	}
	bases, err := ends[0].MergeBase(ends[1])
	if err != nil {
		return "", fmt.Errorf("find what %s and %s have in common: %w", a, b, err)
	}
	if len(bases) == 0 {
		return "", fmt.Errorf("%s and %s have no commit in common in this clone", a, b)
	}
	return bases[0].Hash.String(), nil
}

// reaches reports whether a commit is another one or is seen to come after it.
func (l *Local) reaches(from *object.Commit, to plumbing.Hash) bool {
	seen := map[plumbing.Hash]bool{from.Hash: true}
	for todo := []*object.Commit{from}; len(todo) > 0; todo = todo[1:] {
		if todo[0].Hash == to {
			return true
		}
		for _, hash := range todo[0].ParentHashes {
			if seen[hash] {
				continue
			}
			seen[hash] = true
			if c, err := l.repo.CommitObject(hash); err == nil {
				todo = append(todo, c)
			}
		}
	}
	return false
}
