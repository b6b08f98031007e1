#!/usr/bin/env bash
# Builds ddp as a part of another project, as docs/install.md says, and trains by
# that project's program as two processes.
# Usage: from_source.sh BUILD_FOLDER TORCH_DIR DDPRUN
set -euo pipefail
# It stays, and ccache serves it, so that a second run builds only what has changed.
build=$1/from_source torch=$2 ddprun=$3
CMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache || true)
export CMAKE_CXX_COMPILER_LAUNCHER
source=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
checkout=$(realpath -- "$source/../..")
work=$(mktemp -d -t ddp-source-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
sed -n '/^## FetchContent/,$ { /^```cmake/,/^```/ { /^```/!p } }' \
  "$checkout/docs/install.md" >"$work/fetch.cmake"
cat >"$work/subdirectory.cmake" <<END
add_subdirectory("$checkout" _deps/ddp-build EXCLUDE_FROM_ALL)
target_link_libraries(train PRIVATE ddp::ddp)
if(TARGET ddp::mpi)
  target_link_libraries(train PRIVATE ddp::mpi)
endif()
END
# ddp's own folder is the same, so that the second way builds nothing of it.
for way in fetch subdirectory; do
  cmake -S "$source/from_source" -B "$build" -G Ninja -DTorch_DIR="$torch" \
    -DDDP_LINES="$work/$way.cmake" -DFETCHCONTENT_SOURCE_DIR_DDP="$checkout" \
    -DDDP_HELP2MAN=help2man
  cmake --build "$build" -j 2 --target train own_folders
  rm -f -- "$build/model.safetensors"
  "$ddprun" --nproc-per-node 2 "$build/train" 2 "$build/model.safetensors"
done
if grep 'help2man' "$build/build.ninja"; then
  echo "ddp's programs, with another project's flags, print their manual pages"
  exit 1
fi
mpicc=$(command -v mpicc || true)
[[ ! $mpicc || -e $build/_deps/ddp-build/libddp_mpi.so ]] ||
  { echo 'the library that ddp::mpi loads was not built'; exit 1; }

if cmake -S "$checkout" -B "$work/apart" -DTorch_DIR="$torch" \
  -DCMAKE_INSTALL_PREFIX=/p -DCMAKE_INSTALL_LIBDIR=/q/lib 2>"$work/apart.txt"; then
  echo 'libraries outside of the prefix, where programs do not look'
  exit 1
fi
grep -q 'CMAKE_INSTALL_LIBDIR must be below' "$work/apart.txt"

# Other compilers, generators and folders than the tests' own.
CC=${mpicc:-cc} CXX=${mpicc:+mpi}c++ cmake -S "$checkout" -B "$work/make" -G 'Unix Makefiles' -DTorch_DIR="$torch" \
  -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_EXAMPLES=OFF -DDDP_BUILD_BENCH=OFF \
  -DCMAKE_INSTALL_PREFIX=/p -DCMAKE_INSTALL_LIBDIR=/p/lib \
  -DCMAKE_INSTALL_LIBEXECDIR=lib -DCMAKE_INSTALL_BINDIR=tools/bin \
  -DDDP_HELP2MAN=help2man
grep -q '/ddp-checkpoint.dir/all: CMakeFiles/ddp.dir/all' \
  "$work/make/CMakeFiles/Makefile2" ||
  { echo 'Make may link ddp-checkpoint before it has the library'; exit 1; }
grep -qxF 'libdir=${prefix}/lib' "$work/make/ddp.pc" ||
  { echo 'ddp.pc joins the prefix and an absolute folder'; exit 1; }
grep -qF 'DDP_HELPERS=\"../../lib/ddp\"' \
  "$work/make/launcher/CMakeFiles/ddprun_core.dir/flags.make" ||
  { echo 'ddprun looks for its helpers in another folder'; exit 1; }
grep -qF 'NEW_RPATH "\$ORIGIN/../../lib:' "$work/make/cmake_install.cmake" ||
  { echo 'installed programs look for libraries in another folder'; exit 1; }
rules=$work/make/checkpoint/command/CMakeFiles/ddp-checkpoint.dir/build.make
grep -q help2man "$rules" || { echo 'there are no manual pages'; exit 1; }
for option in CMAKE_SKIP_RPATH CMAKE_SKIP_BUILD_RPATH \
  CMAKE_BUILD_WITH_INSTALL_RPATH; do
  cmake "$work/make" -U 'CMAKE_SKIP_*RPATH' "-D$option=ON"
  if grep help2man "$rules"; then
    echo "with $option, programs run that do not find their libraries"
    exit 1
  fi
done

if cmake -S "$checkout" -B "$work/multi" -G 'Ninja Multi-Config' \
  -DTorch_DIR="$torch" 2>"$work/multi.txt"; then
  echo 'tests for several configurations, which cannot be built'
  exit 1
fi
grep -q 'DDP_BUILD_TESTS=OFF' "$work/multi.txt"
