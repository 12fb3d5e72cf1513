#!/usr/bin/env bash
# Archives the source of a release for the test of upgrades, which builds its programs without the history:
# the files that cmd/scheduler and cmd/nodeagent are built from, without tests.
#
#   scripts/release-archive.sh COMMIT OUT.tar.gz
#
# The same commit gives the same bytes.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
readonly most_bytes=600000

cd "$(dirname "$0")/.."
commit="$(git rev-parse --verify --quiet "$1^{commit}")" || { echo "release-archive: there is no commit $1" >&2; exit 1; }
case "$2" in /*) out="$2" ;; *) out="$OLDPWD/$2" ;; esac

dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/source"
git archive "$commit" | tar -x -C "$dir/source"
cd "$dir/source"

# Files for other systems are part of the source too.
go list -deps -f '{{if .Module}}{{if .Module.Main}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .SFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredOtherFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}' \
	./cmd/scheduler ./cmd/nodeagent | sed -e "s|^$PWD/||" -e '/^$/d' -e '/_test\.go$/d' >"$dir/files"
printf '%s\n' go.mod go.sum LICENSE >>"$dir/files"
LC_ALL=C sort -u -o "$dir/files" "$dir/files"

tar -c --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r --no-recursion -T "$dir/files" |
	gzip -9 -n >"$dir/archive"
bytes="$(wc -c <"$dir/archive")"
echo "release-archive: $commit: $(wc -l <"$dir/files") files, $bytes bytes"
if [ "$bytes" -gt "$most_bytes" ]; then
	echo "release-archive: expected at most $most_bytes bytes" >&2
	exit 1
fi
mkdir -p "$(dirname "$out")"
mv "$dir/archive" "$out"
chmod 644 "$out"
