#!/bin/sh
# build.sh DIR OUTPUT [FLAG...] builds the command in DIR, or with PACKAGE that one
# by the module in DIR, and shows how far it has come. The first build of the sandbox compiles all of Kubernetes' control plane,
# some 2,000 packages, and takes several minutes; later ones take seconds.
set -eu
dir=$1
name=$(basename "$2")
mkdir -p "$(dirname "$2")"
output=$(cd "$(dirname "$2")" && pwd)/$name
shift 2
package=${PACKAGE:-.}
cd "$dir"

total=$(go list -deps "$package" | wc -l)
tty=0
if [ -t 2 ]; then tty=1; fi
{
	code=0
	go build -v -o "$output" "$@" "$package" 2>&1 || code=$?
	echo "exit $code"
} | awk -v total="$total" -v tty="$tty" -v name="$name" '
	# go build -v names each package that it compiles; anything else is an error.
	function show(text) {
		if (tty) printf "\r\033[K%s", text > "/dev/stderr"
		else print text > "/dev/stderr"
		fflush()
	}
	/^exit [0-9]+$/ { code = $2; next }
	/^[a-zA-Z0-9._~\/-]+$/ {
		n++
		if (tty || n % 100 == 0) show("building " name ": " n " packages compiled, of at most " total)
		next
	}
	{ if (tty && n) printf "\r\033[K" > "/dev/stderr"; print > "/dev/stderr" }
	END { if (tty && n) printf "\r\033[K" > "/dev/stderr"; exit code }
'
