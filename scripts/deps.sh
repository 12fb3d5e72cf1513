#!/usr/bin/env bash
# Installs missing tools with which freeslot is built, run and tested, by apt-get.
#
#   scripts/deps.sh NAME...      NAME is redis, cc, node, docker, compose, caddy, espeak, sox, postgres,
#                                prometheus, python, celery or chromium
#
# It does not touch installed tools. It needs root or sudo. Without either, or without apt-get, it prints what to
# run and exits 1. It starts no service: the tests start Redis and dockerd themselves.
set -euo pipefail

PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
readonly policy=/usr/sbin/policy-rc.d
readonly oldest_redis=7

say() { echo "deps.sh: $*"; }
fail() {
	echo "deps.sh: $*" >&2
	exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# redis_binary prints the server that the programs and the tests use.
redis_binary() {
	if [ -n "${FREESLOT_TEST_REDIS_SERVER:-}" ]; then
		echo "$FREESLOT_TEST_REDIS_SERVER"
	elif ! has redis-server && has valkey-server; then
		echo valkey-server
	else
		echo redis-server
	fi
}

# missing prints the packages that the dependency $1 still needs.
missing() {
	case "$1" in
	redis)
		has "$(redis_binary)" || echo redis-server
		;;
	cc) # the race detector is linked by a C compiler
		has cc || has gcc || echo gcc libc6-dev
		;;
	node)
		has node || echo nodejs
		has npm || echo npm
		;;
	docker)
		docker info >/dev/null 2>&1 && return
		if ! has dockerd; then
			echo docker.io iptables
			# Where the kernel has AppArmor the engine starts no container without the parser.
			if grep -qs Y /sys/module/apparmor/parameters/enabled; then echo apparmor; fi
		fi
		# Newer releases have the command in a package of its own; install sees to older ones.
		has docker || echo docker-cli
		;;
	compose) has docker-compose || echo docker-compose ;;
	caddy) has caddy || echo caddy ;;
	espeak) has espeak-ng || echo espeak-ng ;;
	sox) has sox || echo sox ;;
	postgres) # its programs lie in a folder for each version, most of them not in PATH
		has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || echo postgresql
		;;
	prometheus) has prometheus && has promtool || echo prometheus ;;
	chromium) has chromium || echo chromium ;;
	python) # Debian's, whatever python3 comes first in PATH
		/usr/bin/python3 -c 'import hatchling, mypy, psutil, pytest, websockets, xxhash' 2>/dev/null ||
			echo python3-hatchling python3-mypy python3-psutil python3-pytest python3-websockets python3-xxhash
		;;
	celery) /usr/bin/python3 -c 'import celery, redis' 2>/dev/null || echo python3-celery python3-redis ;;
	*) fail "unknown dependency: $1 (redis, cc, node, docker, compose, caddy, espeak, sox, postgres, prometheus, python, celery, chromium)" ;;
	esac
}

# check_redis refuses a server that lacks commands of the scripts.
check_redis() {
	local version
	version="$("$(redis_binary)" --version | sed -n 's/.* v=\([0-9]*\)\..*/\1/p')"
	[ "${version:-0}" -ge "$oldest_redis" ] ||
		fail "$(redis_binary) is older than $oldest_redis.0; install a newer one: https://redis.io/docs/latest/operate/oss_and_stack/install/"
}

# as_root runs a command as root. Without a terminal sudo must not ask.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif [ -t 0 ] && [ -z "${CI:-}" ]; then
		sudo "$@"
	else
		sudo -n "$@"
	fi
}

can_be_root() {
	[ "$(id -u)" = 0 ] && return
	has sudo || return
	[ -t 0 ] && [ -z "${CI:-}" ] && return
	sudo -n true 2>/dev/null
}

# forbid_services keeps packages from starting services while they are installed (Debian policy: exit code 101).
# restore_services restores the earlier state.
saved=""
forbid_services() {
	# A copy that is there already was left by a run that was killed: what lies at $policy is ours then.
	if as_root test -e "$policy.before-freeslot"; then
		saved="$policy.before-freeslot"
	elif as_root test -e "$policy"; then
		saved="$policy.before-freeslot"
		as_root mv "$policy" "$saved"
	fi
	trap restore_services EXIT
	trap 'exit 130' INT TERM
	printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
	as_root chmod 755 "$policy"
}

restore_services() {
	as_root rm -f "$policy"
	if [ -n "$saved" ]; then
		as_root mv "$saved" "$policy"
	fi
}

apt() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get \
		-o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 -q -y "$@" </dev/null
}

install() {
	local wanted=("$@") packages=() p
	# A repository that does not answer is no reason to give up: the packages may come from another.
	apt update || say "apt-get update failed, trying with the lists that are there"
	for p in "${wanted[@]}"; do
		if [ "$p" = docker-cli ] && ! apt-cache show docker-cli >/dev/null 2>&1; then
			p=docker.io
		fi
		packages+=("$p")
	done
	forbid_services
	apt install --no-install-recommends "${packages[@]}"
	# The policy is about now; on a machine with systemd the service would still start with the next boot.
	case " ${packages[*]} " in
	*" redis-server "*)
		if [ -d /run/systemd/system ] && has systemctl; then
			as_root systemctl disable --now redis-server.service || true
		fi
		;;
	esac
	case " ${packages[*]} " in
	*" prometheus "*)
		if [ -d /run/systemd/system ] && has systemctl; then
			as_root systemctl disable --now prometheus.service || true
		fi
		;;
	esac
	case " ${packages[*]} " in
	*" caddy "*)
		if [ -d /run/systemd/system ] && has systemctl; then
			as_root systemctl disable --now caddy.service || true
		fi
		;;
	esac
	case " ${packages[*]} " in
	*" postgresql "*)
		if [ -d /run/systemd/system ] && has systemctl; then
			as_root systemctl disable --now postgresql.service || true
		fi
		;;
	esac
}

[ $# -gt 0 ] || fail "usage: $0 redis|cc|node|docker|compose|caddy|espeak|sox|postgres|prometheus|python|celery|chromium ..."

names=("$@")
packages=()
for name in "${names[@]}"; do
	list="$(missing "$name")" # an assignment of its own: set -e sees a failure
	# shellcheck disable=SC2206 # several packages
	packages+=($list)
done

if [ "${#packages[@]}" -gt 0 ]; then
	if ! has apt-get; then
		fail "missing: ${packages[*]} (names of Debian packages); install them with this system's package manager"
	fi
	if ! can_be_root; then
		fail "missing packages; run: sudo apt-get install --no-install-recommends ${packages[*]}"
	fi
	say "installing ${packages[*]}"
	install "${packages[@]}"
	for name in "${names[@]}"; do
		list="$(missing "$name")"
		[ -z "$list" ] || fail "still missing after the installation: $list"
	done
fi

for name in "${names[@]}"; do
	if [ "$name" = redis ]; then check_redis; fi
done
