#!/usr/bin/env bash
# A clean build of the library costs at most 400 seconds of CPU.
# Usage: build_cost.sh SOURCE_FOLDER TORCH_DIR
set -euo pipefail
work=$(mktemp -d -t ddp-build-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
cmake -S "$1" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DTorch_DIR="$2" -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_EXAMPLES=OFF \
  -DDDP_BUILD_BENCH=OFF >"$work/log" || { cat "$work/log" && exit 1; }
TIMEFORMAT='%U %S'
seconds=$({ time cmake --build "$work/build" --target ddp >"$work/log" 2>&1; } 2>&1)
echo "user and system seconds: $seconds"
awk '{ exit !($1 + $2 > 1 && $1 + $2 < 400) }' <<<"$seconds"
