package cli

import (
	"cmp"

	"github.com/coppice-dev/coppice/internal/forge"
)

// checkedOut makes sure that what is checked out, and so is judged, is what the comment
// and the status are about, and finds the commit to compare with.
//
// A merge of the head counts only if the CI system made it. Anybody who may push can push
// an evil head, and then a merge of it that takes the evil away: judging whatever a branch
// leads to would give the head a status that it doesn't deserve.
func (r *review) checkedOut() error {
	j, c := &r.job, r.clone
	if c.local == nil {
		switch {
		case j.base != "":
			return usagef("%s isn't part of a Git clone, so there is no commit %s to compare with", r.options.dir, j.base)
		case j.speaks() || j.head != "":
			return usagef("%s isn't part of a Git clone, so what it holds isn't known to be what the pull request does: clone the repository in the job", r.options.dir)
		}
		return nil
	}
	j.head = c.hash(cmp.Or(j.head, c.head))
	into, err := r.mergedInto()
	if err != nil {
		return err
	}
	if c.edited != "" && j.speaks() {
		return usagef("%s isn't as commit %s has it, which is checked out, so what is judged isn't what would be merged: commit it, or run 'coppice ci' before whatever changes it", c.edited, forge.Short(c.head))
	}
	if into != "" {
		if _, err := c.local.Commit(into); err != nil {
			return usagef("the commit %s that the pull request is merged into isn't in this clone: fetch it, as with fetch-depth: 2 in GitHub Actions or GIT_DEPTH: 0 in GitLab CI", into)
		}
		r.base = into
		return nil
	}
	if j.base == "" {
		if j.speaks() {
			return usagef("which commit the pull request goes into isn't known: give --base, as in --base origin/main")
		}
		return nil
	}
	if r.base, err = c.local.MergeBase("HEAD", j.base); err != nil {
		return usagef("where the branch parted from %s isn't known in this clone: fetch it with its history, as with fetch-depth: 0 in GitHub Actions, GIT_DEPTH: 0 in GitLab CI, clone: depth: full in Bitbucket Pipelines or 'git fetch --unshallow' (%v)", j.base, err)
	}
	return nil
}

// speaks reports whether there is somebody to tell, or would be with a token.
func (j job) speaks() bool { return j.silent == "" && (j.number != 0 || j.queue) }

// mergedInto returns "" if the head itself is checked out, and the commit that it was
// merged with if that merge is. Anything else is an error. Who the parents of a commit are
// is part of it, and known in the shallowest clone.
func (r *review) mergedInto() (string, error) {
	j, c := r.job, r.clone
	if c.head == j.head {
		return "", nil
	}
	parents, err := c.local.Parents("HEAD")
	if err != nil && c.head != "" {
		return "", failed(err)
	}
	switch {
	case len(parents) != 2:
	case j.made != "" && c.head == c.hash(j.made) && parents[1] == j.head:
		return parents[0], nil
	case j.mergesBase && parents[0] == j.head:
		return parents[1], nil
	}
	named := "the pull request holds"
	if r.options.head != "" {
		named = "--head names"
	}
	return "", usagef("commit %s is checked out, and not %s, which %s, so what is judged would not be what is spoken of: %s",
		cmp.Or(c.head, "none"), j.head, named, j.checkOut())
}

// checkOut says how to check the head out.
func (j job) checkOut() string {
	switch j.system {
	case "GitHub Actions", "Gitea Actions":
		return "in a workflow on: pull_request leave out actions/checkout's ref, or give it ${{ github.event.pull_request.head.sha }} and not a branch; one on: pull_request_target checks out the base, and isn't for this"
	case "GitLab CI":
		return "leave what the pipeline checks out by itself as it is"
	}
	return "run 'git checkout " + j.head + "' before, also if the job has merged it by itself"
}
