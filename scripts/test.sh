#!/usr/bin/env bash
# Runs Go tests. A test that fails runs once more by itself, because a machine can stand still for longer than a test
# waits for something to move. After a data race, a panic or more than three failures nothing runs again.
#
#   scripts/test.sh NAME PACKAGES GO-TEST-ARGUMENT...   in the module of the current folder
#
# .dev/twice-NAME.txt lists the tests that ran twice.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
readonly root name="$1" packages="$2"
shift 2
readonly report="$root/.dev/twice-$name.txt" log="$root/.dev/test-$name.log"
mkdir -p "$root/.dev"
rm -f "$report"

"${GO:-go}" tool -modfile="$root/tools/go.mod" gotestsum --format standard-quiet --rerun-fails=1 \
	--rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test \
	--rerun-fails-report="$report" --packages "$packages" -- "$@" 2>&1 | tee "$log"

# A second run cannot show either of these to be harmless. What goleak finds after the last test belongs to no test, so
# the second run runs none.
if sed '1,/^DONE /d' "$log" | grep -F '[no tests to run]'; then
	echo "a package failed outside its tests; see $log" >&2
	exit 1
fi
if grep -E '\[rapid\] (failed|panic) after' "$log"; then
	echo "a property does not hold for all values; see $log" >&2
	exit 1
fi
