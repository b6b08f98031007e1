#!/usr/bin/env bash
# Configures ddp with no CUDA toolkit and with one of another major version:
# both have to give a CPU build and say what a CUDA build would need.
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

# As much of an old toolkit as CMake looks at.
mkdir -p "$work/cuda/bin" "$work/cuda/include" "$work/cuda/lib64"
touch "$work/cuda/include/cuda_runtime.h" "$work/cuda/lib64/libcudart.so"
printf '#!/bin/sh\n%s\n' \
  'echo "Cuda compilation tools, release 11.8, V11.8.89"' >"$work/cuda/bin/nvcc"
chmod +x "$work/cuda/bin/nvcc"
configure 'no nccl: the CUDA toolkit is 11.8.89 and LibTorch was built for' \
  -DCUDAToolkit_ROOT="$work/cuda"
