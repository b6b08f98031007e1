#!/usr/bin/env bash
# What the CUDA toolkit lacks comes from LibTorch's wheel, and what both lack is
# named. Nothing is built: all are folders of empty files.
# Usage: cuda_parts_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d -t ddp-cuda-XXXXXX)
trap 'rm -rf -- "$work"' EXIT

torch=$work/site/torch wheels=$work/site/nvidia toolkit=$work/toolkit
mkdir -p "$torch/share/cmake/Torch" "$torch/lib" "$wheels"/{cu13,nccl}/include \
  "$wheels/cu13/lib" "$toolkit/bin" "$toolkit/include"/{crt,cccl/nv} \
  "$work/project"
touch "$torch/share/cmake/Torch/TorchConfig.cmake" \
  "$toolkit/include"/{crt/host_defines.h,cccl/nv/target} \
  "$wheels"/cu13/include/{cuda_runtime,cublas_v2,cublasLt,cusolverDn}.h \
  "$wheels"/{cu13/include/cusparse.h,cu13/lib/libcudart.so.13} \
  "$wheels/nccl/include/nccl.h"
echo 'set(PACKAGE_VERSION "2.11.0")' \
  >"$torch/share/cmake/Torch/TorchConfigVersion.cmake"
echo libcudart.so.13 >"$torch/lib/libc10_cuda.so"
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' \
  >"$toolkit/bin/nvcc"
chmod +x "$toolkit/bin/nvcc"
# CMake 3.25 as released fails so with CUDA 13; some copies of it are mended.
cat >"$work/project/FindCUDAToolkit.cmake" <<'EOF'
if(CMAKE_MINIMUM_REQUIRED_VERSION VERSION_GREATER_EQUAL 3.25)
  message(FATAL_ERROR "could not find TARGET CUDA::nvToolsExt")
endif()
include(${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake)
EOF
cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
set(CMAKE_MODULE_PATH "$work/project")
set(DDP_WANTS_CUDA ON)
include("$source/cmake/DdpTorch.cmake")
include("$source/cmake/DdpTorchImport.cmake")
get_target_property(libraries ddp::torch INTERFACE_LINK_LIBRARIES)
get_target_property(includes ddp::torch INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS "found: \${DDP_BACKENDS}; \${libraries}; \${includes}")
message(STATUS "beside LibTorch: \${DDP_CUDART_FOLDER}")
EOF

expect() { # WHAT TEXT...
  local what=$1 output text
  shift
  rm -rf -- "$work/build"
  output=$(cmake -S "$work/project" -B "$work/build" -G Ninja \
    -DCUDAToolkit_ROOT="$toolkit" -DTorch_DIR="$torch/share/cmake/Torch" 2>&1) || true
  for text; do
    [[ $output == *"$text"* ]] || {
      echo "$output"
      echo "failed: $what: $text"
      exit 1
    }
  done
}

expect 'the wheel has what the toolkit lacks' 'nccl (CUDA 13.0.88)' \
  "$wheels/cu13/lib/libcudart.so.13" "$wheels/cu13/include" "$toolkit/include" \
  "$toolkit/include/cccl"
mkdir "$toolkit/lib64"
touch "$toolkit/lib64/libcudart.so" "$toolkit/include/cuda_runtime.h"
expect 'what is built with a toolkit also looks for the cudart of the wheel' \
  ';CUDA::cudart;' "beside LibTorch: $wheels/cu13/lib"
rm -r -- "$toolkit"/{lib64,include/cuda_runtime.h}
rm -- "$wheels"/cu13/{include/cus*.h,lib/libcudart.so.13} \
  "$toolkit/include/cccl/nv/target"
expect 'what is missing is named' \
  'no nccl' 'cusolverDn.h, cusparse.h, nv/target, libcudart.so.13'
sed -i 's/13\.0/12.4/g' "$toolkit/bin/nvcc"
expect 'a toolkit of another version is named first, and a CPU build results' \
  'no nccl: the CUDA toolkit is 12.4.88 and LibTorch was built for CUDA 13' \
  'found: gloo (CPU);'
