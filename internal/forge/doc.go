// Package forge speaks in pull requests: it lists them, keeps one comment in each
// and sets the status of a commit, on GitHub, GitLab, Gitea, Forgejo and Bitbucket.
//
// A Forge is one repository on one server. What differs between servers ends here:
// paths, paging, names of states, sizes, who we are. Each speaks plain HTTP through
// one client, so that time limits, rate limits, redirects and secrets are dealt with
// in one place.
//
// Stick keeps the comment of one cluster and source: it is found by a hidden marker
// and its author among all comments, changed in place only when it would read
// otherwise, and never by who looked at an older head. Body is what such a comment
// says.
//
// Nothing here reads an environment or decides what to say about a change: that is
// the callers' part (coppice ci, and the controller reconcile/pullrequest).
package forge
