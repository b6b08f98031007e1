#!/usr/bin/env bash
# Configures ddp with no CUDA toolkit, which has to give a CPU build and to say
# what a CUDA build would need.
# Usage: toolkit_test.sh SOURCE_FOLDER TORCH_DIR
set -euo pipefail
source=$1 torch=$2
work=$(mktemp -d -t ddp-toolkit-XXXXXX)
trap 'rm -rf -- "$work"' EXIT

configure() { # EXPECTED CMAKE_ARGUMENT...
  local expected=$1 output
  rm -rf -- "$work/build"
  output=$(cmake -S "$source" -B "$work/build" -G Ninja -DTorch_DIR="$torch" \
    -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_EXAMPLES=OFF "${@:2}" 2>&1) || {
    echo "$output"
    echo "configuring failed with ${*:2}"
    exit 1
  }
  grep -F -- "$expected" <<<"$output" || {
    echo "$output"
    echo "configuring with ${*:2} did not say: $expected"
    exit 1
  }
}

if [[ ! -e $torch/../../../lib/libc10_cuda.so ]]; then
  configure 'no nccl: this LibTorch has no CUDA'
  exit
fi

configure 'no nccl: DDP_WITH_CUDA is off' -DDDP_WITH_CUDA=OFF
configure 'no nccl: no CUDA toolkit was found' \
  -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
