#!/usr/bin/env bash
# Gives the Docker tests an engine.
#
#   scripts/dockerd.sh start   use the engine that answers, else start dockerd and wait for it
#   scripts/dockerd.sh stop    stop the dockerd that start has started; leave any other alone
#   scripts/dockerd.sh status  exit 0 when an engine answers
#   scripts/dockerd.sh run COMMAND...  run a command with an engine; stop it afterwards if it was started for it
#
# Process id, log and images are kept in .dev/ of this checkout. It works without systemd, also inside a
# container with enough privileges.
set -euo pipefail

cd "$(dirname "$0")/.."
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

readonly dev="$PWD/.dev"
readonly pidfile="$dev/dockerd.pid"
readonly log="$dev/dockerd.log"
readonly data="$dev/docker"
readonly start_limit=60 # seconds for one try
readonly stop_limit=30  # seconds until SIGKILL

say() { echo "dockerd.sh: $*"; }
fail() {
	echo "dockerd.sh: $*" >&2
	exit 1
}

answers() { timeout 10 docker info >/dev/null 2>&1; }

# as_root runs a command as root; without root and without a terminal sudo must not ask.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif ! command -v sudo >/dev/null; then
		fail "starting and stopping dockerd needs root; run as root: $0 ${action}"
	elif [ -t 0 ] && [ -z "${CI:-}" ]; then
		sudo "$@"
	else
		sudo -n "$@" || fail "starting and stopping dockerd needs root; run: sudo $0 ${action}"
	fi
}

# own_pid prints the process id of the dockerd that start has started, if it still runs.
own_pid() {
	local pid
	pid="$(cat "$pidfile" 2>/dev/null)" || return 1
	[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] || return 1
	tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "--pidfile=$pidfile" || return 1
	echo "$pid"
}

# try starts dockerd with the given options and returns 0 when it answers. An option that does not work
# here ends dockerd within a second or two.
try() {
	local pid waited=0
	as_root rm -f "$pidfile"
	echo "== dockerd $*" >>"$log"
	as_root env PATH="$PATH" setsid dockerd --pidfile="$pidfile" --data-root="$data" --group="$(id -g)" "$@" \
		>>"$log" 2>&1 </dev/null &
	pid=$!
	while [ "$waited" -lt $((start_limit * 5)) ]; do
		answers && return 0
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.2
		waited=$((waited + 1))
	done
	stop
	return 1
}

start() {
	if answers; then
		say "using the engine that runs"
		return 0
	fi
	command -v docker >/dev/null && command -v dockerd >/dev/null ||
		fail "docker is not installed; run: scripts/deps.sh docker"
	mkdir -p "$dev"
	: >"$log"
	# overlay2 does not work on top of another overlay (a container's own file system); vfs always does.
	# Without iptables a published port is served by docker-proxy alone, which is enough for the tests;
	# without the default bridge they have a network of their own.
	local storage network
	for storage in overlay2 vfs; do
		for network in "" "--iptables=false --ip6tables=false" "--iptables=false --ip6tables=false --bridge=none"; do
			# shellcheck disable=SC2086 # several options
			if try --storage-driver="$storage" $network; then
				say "started: storage $storage${network:+, $network}; log in .dev/dockerd.log"
				return 0
			fi
		done
	done
	tail -n 20 "$log" >&2
	fail "dockerd does not start here; the whole log is in $log"
}

stop() {
	local pid waited=0
	if ! pid="$(own_pid)"; then
		return 0
	fi
	as_root kill -TERM "$pid"
	while [ -n "$(own_pid || true)" ]; do
		if [ "$waited" -ge $((stop_limit * 5)) ]; then
			as_root kill -KILL "$pid"
			say "killed dockerd, it did not stop within $stop_limit s"
			break
		fi
		sleep 0.2
		waited=$((waited + 1))
	done
	as_root rm -f "$pidfile"
	say "stopped"
}

run() {
	if ! answers; then
		start
		trap stop EXIT
		trap 'exit 130' INT TERM
	fi
	"$@"
}

readonly action="${1:-}"
case "$action" in
start) start ;;
stop) stop ;;
status) answers ;;
run)
	shift
	[ $# -gt 0 ] || fail "usage: $0 run COMMAND..."
	run "$@"
	;;
*) fail "usage: $0 start|stop|status|run COMMAND..." ;;
esac
