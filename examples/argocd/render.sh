#!/bin/sh
# render.sh [BRANCH]: renders each cluster of the tree in this clone, commits what has
# changed to BRANCH (rendered) and pushes that. Run it in CI after each merge, in one job
# at a time. It never rewrites the branch, and a commit that renders to the same makes none.
set -eu
branch=${1:-rendered}
out=$(mktemp -d)
trap 'git worktree remove --force "$out" 2>/dev/null || true; git update-ref -d refs/heads/coppice-rendering; rm -rf "$out"' EXIT
coppice vet . >&2

if git fetch -q origin "$branch" 2>/dev/null; then
	git worktree add -q --detach "$out" FETCH_HEAD
else
	git worktree add -q --detach --no-checkout "$out" HEAD
	git -C "$out" symbolic-ref HEAD refs/heads/coppice-rendering
	git -C "$out" read-tree --empty
fi
# A cluster that isn't declared any more goes.
find "$out" -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +
if [ -d clusters ]; then
	for dir in clusters/*/; do
		name=$(basename "$dir")
		mkdir -p "$out/$name"
		coppice render . --cluster "$name" >"$out/$name/fleet.yaml"
	done
else
	mkdir -p "$out/cluster"
	coppice render . >"$out/cluster/fleet.yaml"
fi
git -C "$out" add -A
if git -C "$out" rev-parse -q --verify HEAD >/dev/null && git -C "$out" diff --cached --quiet; then
	echo "nothing has changed" >&2
	exit 0
fi
git -C "$out" commit -q -m "render $(git rev-parse --short HEAD)" -m "Rendered-From: $(git rev-parse HEAD)"
git -C "$out" push -q origin "HEAD:refs/heads/$branch"
