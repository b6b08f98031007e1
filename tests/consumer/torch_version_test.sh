#!/usr/bin/env bash
# An installed ddp takes the minor version of LibTorch that it was built
# against, and no other. Nothing is built: LibTorch is a folder with a version.
# Usage: torch_version_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d -t ddp-version-XXXXXX)
trap 'rm -rf -- "$work"' EXIT

make_torch() { # VERSION; prints its Torch_DIR
  local folder=$work/torch-$1/share/cmake/Torch
  mkdir -p "$folder" "$work/torch-$1/include/torch/csrc/api/include"
  touch "$folder/TorchConfig.cmake"
  printf 'set(PACKAGE_VERSION "%s")\n' "$1" >"$folder/TorchConfigVersion.cmake"
  echo "$folder"
}

mkdir -p "$work/maker" "$work/user" "$work/package"
cat >"$work/maker/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(maker LANGUAGES NONE)
include(CMakePackageConfigHelpers)
set(DDP_TORCH_VERSION 2.11.0)
set(DDP_TORCH_CUDA OFF)
configure_package_config_file("$source/cmake/ddpConfig.cmake.in"
  "$work/package/ddpConfig.cmake" INSTALL_DESTINATION lib/cmake/ddp)
EOF
cmake -S "$work/maker" -B "$work/maker/build" >/dev/null
cp -- "$source/cmake/DdpTorch.cmake" "$work/package"
touch "$work/package/ddpTargets.cmake"
cat >"$work/user/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(ddp REQUIRED)
EOF

configure() { # TORCH_VERSION
  rm -rf -- "$work/build"
  cmake -S "$work/user" -B "$work/build" -G Ninja \
    -Dddp_DIR="$work/package" -DTorch_DIR="$(make_torch "$1")" 2>&1
}

for version in 2.11.0 2.11.3; do
  output=$(configure "$version") || {
    echo "$output"
    echo "LibTorch $version was refused by a ddp built against 2.11.0"
    exit 1
  }
done
for version in 2.10.0 2.12.0 2.1.0 3.11.0; do
  if output=$(configure "$version"); then
    echo "LibTorch $version was taken by a ddp built against 2.11.0"
    exit 1
  fi
  output=$(tr -s ' \n' ' ' <<<"$output")
  for expected in 'built against LibTorch 2.11.0' "LibTorch $version was found" \
    'Torch_DIR'; do
    [[ $output == *"$expected"* ]] || {
      echo "$output"
      echo "the error does not say: $expected"
      exit 1
    }
  done
done
