#!/usr/bin/env bash
# Installs a build, moves what was installed, and builds and runs this project
# against it; then compiles a program with the source as a part of its project.
# Usage: run_consumer.sh BUILD_FOLDER TORCH_DIR
set -euo pipefail
build=$(realpath -- "$1") torch=$2
source=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
work=$(mktemp -d -t 'ddp consumer XXXXXX')
trap 'rm -rf -- "$work"' EXIT

# The package has to find itself wherever it is put.
cmake --install "$build" --prefix "$work/first" >/dev/null
mv -- "$work/first" "$work/prefix"

if grep -rIlF -e "$build" "$work/prefix"; then
  echo "the installed files above name the build folder $build"
  exit 1
fi

CMAKE_PREFIX_PATH=$work/prefix cmake -S "$source" -B "$work/build" -G Ninja
cmake --build "$work/build"
if cmake --build "$work/build" --target temporaries >"$work/log"; then
  echo 'objects without a name passed'
  exit 1
fi
for class in Reducer DistributedDataParallel StopSignal AutocastGuard; do
  if ! grep "error: .*$class" "$work/log" | grep -q 'unused-result\|nodiscard'
  then
    cat "$work/log"
    echo "a $class without a name passed"
    exit 1
  fi
done
"$work/build/consumer" 1 "$work/model.safetensors"
"$work/prefix/bin/ddprun" --nproc-per-node 2 \
  "$work/build/consumer" 2 "$work/model.safetensors"

"$work/prefix/bin/ddp-checkpoint" verify "$work/model.safetensors"
"$work/prefix/bin/ddp-flightrecorder" --version
"$work/prefix/bin/ddp-timeline" --version

# Were it not to compare, the runs above would say nothing.
if "$work/build/consumer" 2 "$work/model.safetensors" 2>/dev/null; then
  echo 'the program passed with a world size that it does not have'
  exit 1
fi

for fetch in OFF ON; do
  cmake -S "$source/from_source" -B "$work/from_source_$fetch" -G Ninja \
    -DDDP_CHECKOUT="$source/../.." -DDDP_FETCH=$fetch -DTorch_DIR="$torch"
  cmake --build "$work/from_source_$fetch" --target own_folders
done
