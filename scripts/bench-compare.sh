#!/usr/bin/env bash
# Compares the micro-benchmarks of this tree with those of another commit, by benchstat.
#
#   scripts/bench-compare.sh COMMIT [PATTERN] [RUNS] [PACKAGE...]
#
# The two take turns, run by run, so that changes on the machine affect both. The commit is built in a folder
# of its own; this tree is not changed.
set -euo pipefail
cd "$(dirname "$0")/.."

base="${1:-}"
[ -n "$base" ] || { echo "usage: $0 COMMIT [PATTERN] [RUNS] [PACKAGE...]" >&2; exit 2; }
pattern="${2:-.}" runs="${3:-10}"
shift $(($# < 3 ? $# : 3))
packages=("$@")
if [ ${#packages[@]} = 0 ]; then packages=(./...); fi
commit="$(git rev-parse --verify --quiet "$base^{commit}")" || { echo "bench-compare: $base is no commit" >&2; exit 2; }

dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/base"
git archive "$commit" | tar -x -C "$dir/base"

# A package that the commit does not have is left out of both.
mapfile -t here < <(go list "${packages[@]}")
mapfile -t names < <(cd "$dir/base" && go list -e -f '{{if not .Error}}{{.ImportPath}}{{end}}' "${here[@]}" 2>/dev/null | grep .)
[ ${#names[@]} -gt 0 ] || { echo "bench-compare: $base has none of these packages" >&2; exit 2; }

# bench runs the benchmarks once in the tree $1 and adds their output to the file $2.
bench() {
	(cd "$1" && go test -p 1 -run '^$' -bench "$pattern" -benchmem "${names[@]}") >"$dir/once.txt" || {
		cat "$dir/once.txt" >&2
		exit 1
	}
	cat "$dir/once.txt" >>"$2"
}
for run in $(seq "$runs"); do
	echo "run $run of $runs" >&2
	bench "$dir/base" "$dir/base.txt"
	bench . "$dir/tree.txt"
done
go tool -modfile=tools/go.mod benchstat "base=$dir/base.txt" "tree=$dir/tree.txt"
