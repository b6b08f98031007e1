#!/usr/bin/env bash
# Installs a build, moves what was installed, and builds and runs this project
# against it.
# Usage: run_consumer.sh BUILD_FOLDER TORCH_DIR
set -euo pipefail
build=$(realpath -- "$1") torch=$2
source=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
work=$(mktemp -d -t 'ddp consumer XXXXXX')
trap 'rm -rf -- "$work"' EXIT

# The package has to find itself wherever it is put.
cmake --install "$build" --prefix "$work/first" >/dev/null
mv -- "$work/first" "$work/prefix"

# Only the link leads to LibTorch. (Programs name sources in messages.)
if grep -rIlF -e "$build" -e "${torch%/share/cmake/Torch}" "$work/prefix"; then
  echo "the files above name the build folder $build or that of LibTorch"
  exit 1
fi
find "$work/prefix" -type f \( -name '*.so*' -o -executable \) -print0 |
  while IFS= read -r -d '' file; do
    ! readelf -d "$file" | sed -n 's/.*PATH).*\[\(.*\)\]/:\1/p' |
      grep ':[^$]' ||
      { echo "$file looks for libraries at the place above"; exit 1; }
  done
library=$(find "$work/prefix" -name libddp.so)
[[ $(readlink "$library") == libddp.so.0.1 ]] ||
  { echo 'the soname is not that of the minor version'; exit 1; }

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

# Projects without CMake.
if command -v pkg-config >/dev/null; then
  flags=$(PKG_CONFIG_PATH=${library%/*}/pkgconfig \
    pkg-config --cflags --libs ddp)
  # The folder's name has spaces, which pkg-config escapes.
  eval "c++ -o \"\$work/by_pkg_config\" \"\$source/main.cpp\" $flags"
  "$work/by_pkg_config" 1 "$work/model.safetensors"
fi
