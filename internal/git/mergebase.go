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
	bases, err := ends[0].MergeBase(ends[1])
	if err != nil {
		return "", fmt.Errorf("find what %s and %s have in common: %w", a, b, err)
	}
	if len(bases) == 0 {
		return "", fmt.Errorf("%s and %s have no commit in common in this clone", a, b)
	}
	return bases[0].Hash.String(), nil
}
