#!/bin/sh
# Makes the secrets of compose.yaml with the image of schedctl, and .env:
#
#   ./secrets.sh VERSION     the tag of the images, as make image has printed it
#
# secrets/ gets a password of Redis, one of Grafana (user admin), an operator's token and the token of the nodes, each
# for its container alone. access/ gets what the replicas and Redis compare them with: hashes. It replaces nothing.
set -eu
cd "$(dirname "$0")"
version="${1:?usage: ./secrets.sh VERSION}"
for made in secrets access .env; do
	[ ! -e "$made" ] || { echo "secrets.sh: $made is there already; remove it to make all secrets anew" >&2; exit 1; }
done
docker image inspect "freeslot/schedctl:$version" >/dev/null || {
	echo "secrets.sh: there is no image freeslot/schedctl:$version; want the version that make image has printed" >&2
	exit 1
}

# The programs run as this user, or as one that owns nothing else; the files must be theirs.
user="$(id -u):$(id -g)"
[ "$(id -u)" != 0 ] || user=65532:65532
umask 077
mkdir secrets access
chmod 755 access
done=no
trap '[ "$done" = yes ] || rm -rf secrets access .env' EXIT

random() { head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'; }
schedctl() { docker run --rm --user "$user" -v "$PWD/secrets:/secrets:ro" "freeslot/schedctl:$version" "$@"; }

random >secrets/redis-password
random >secrets/grafana-password
[ "$(id -u)" != 0 ] || chown -R "$user" secrets
{
	echo "user default reset"
	schedctl acl --role replica --password-file /secrets/redis-password --format aclfile
} >access/redis.acl
schedctl tokens new operator --tenant ops --role operator >secrets/operator-token 2>access/tokens.yaml
schedctl nodes token 'node-*' --name compose --service wordcount >secrets/node-token 2>access/node-tokens.yaml
[ "$(id -u)" != 0 ] || chown -R "$user" secrets
chmod 400 secrets/*
chmod 644 access/*
printf 'FREESLOT_VERSION=%s\nFREESLOT_USER=%s\n' "$version" "$user" >.env
done=yes
echo "secrets.sh: made secrets/, access/ and .env"
