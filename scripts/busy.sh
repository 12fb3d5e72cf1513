#!/usr/bin/env bash
# Runs a command beside four busy loops of normal priority, which stop with it.
#
#   scripts/busy.sh COMMAND...
set -euo pipefail

readonly loops=4

# A loop that outlives this script, after a SIGKILL, sees that and ends.
spin() {
	local i
	while kill -0 "$1" 2>/dev/null; do
		for ((i = 0; i < 200000; i++)); do :; done
	done
}

pids=()
stop() {
	trap - EXIT
	[ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait "${pids[@]}" 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

for ((n = 0; n < loops; n++)); do
	spin $$ </dev/null &
	pids+=($!)
done

begin=$SECONDS status=0
"$@" || status=$?
echo "busy.sh: ran beside $loops busy loops for $((SECONDS - begin)) s, exit status $status: $*"
exit "$status"
