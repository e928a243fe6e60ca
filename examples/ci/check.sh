#!/bin/sh
# check.sh [BASE]: for any other CI system, or a person. It reports what the commit that
# is checked out changes of BASE, origin/main by default. To speak in a pull request it
# needs the pull request's head to be checked out, no merge and no edits, and COPPICE_TOKEN, REPOSITORY (its URL), PULL (the number), and FORGE where the host's
# name doesn't tell (github, gitlab, gitea, forgejo, bitbucket).
set -eu
set -- --base "${1:-origin/main}"
if [ -n "${COPPICE_TOKEN:-}" ] && [ -n "${PULL:-}" ]; then
	set -- "$@" --pull "$PULL" --repository "$REPOSITORY"
fi
if [ -n "${FORGE:-}" ]; then set -- "$@" --forge "$FORGE"; fi
exec coppice ci "${DIR:-.}" "$@"
