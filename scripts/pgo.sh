#!/usr/bin/env bash
# Measures where choices and events spend their time, for the compiler: the profiles with
# which the scheduler and the benchmark are built (go help build, -pgo).
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -trimpath -pgo=off -o "$dir/core" ./bench/core
for part in choose apply; do
	"$dir/core" -run "$part" -cpuprofile "$dir/$part.pprof" -out "$dir/core.json" -markdown "$dir/core.md"
done
go tool pprof -proto "$dir/choose.pprof" "$dir/apply.pprof" >bench/core/default.pgo
cp bench/core/default.pgo cmd/scheduler/default.pgo
