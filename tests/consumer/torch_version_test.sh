#!/usr/bin/env bash
# An installed ddp takes the minor version of LibTorch that it was built
# against, with LibTorch's own targets and flags unless it has CUDA, and refuses
# in one line what it cannot use. Nothing is built: LibTorch is a folder with a
# version.
# Usage: torch_version_test.sh SOURCE_FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d -t ddp-version-XXXXXX)
trap 'rm -rf -- "$work"' EXIT
package=$work/prefix/lib/cmake/ddp
c10d=include/torch/csrc/distributed/c10d

make_torch() { # VERSION; sets `torch`
  torch=$work/torch-$1
  rm -rf -- "$torch"
  mkdir -p "$torch/share/cmake/Torch" "$torch/share/cmake/Caffe2" \
    "$torch/include/torch/csrc/api/include" "$torch/$c10d" "$torch/lib"
  cat >"$torch/share/cmake/Torch/TorchConfig.cmake" <<EOF
set(TORCH_LIBRARIES own_torch)
set(TORCH_CXX_FLAGS "-DFLAG_OF_LIBTORCH -DANOTHER")
EOF
  echo 'USE_DISTRIBUTED;USE_C10D_GLOO' \
    >"$torch/share/cmake/Caffe2/Caffe2Targets.cmake"
  echo '  std::vector<std::shared_ptr<::gloo::Context>> contexts_;' \
    >"$torch/$c10d/ProcessGroupGloo.hpp"
  printf 'set(PACKAGE_VERSION "%s")\n' "$1" \
    >"$torch/share/cmake/Torch/TorchConfigVersion.cmake"
}

make_package() { # WITH_CUDA
  mkdir -p "$work/maker" "$package"
  cat >"$work/maker/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(maker LANGUAGES NONE)
include(CMakePackageConfigHelpers)
set(DDP_TORCH_VERSION 2.11.0)
set(DDP_TORCH_CUDA $1)
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_INSTALL_PREFIX "$work/prefix")
configure_package_config_file("$source/cmake/ddpConfig.cmake.in"
  "$package/ddpConfig.cmake" INSTALL_DESTINATION lib/cmake/ddp
  PATH_VARS CMAKE_INSTALL_LIBDIR)
EOF
  cmake -S "$work/maker" -B "$work/maker/build" >/dev/null
}

make_package OFF
cp -- "$source"/cmake/DdpTorch*.cmake "$package"
touch "$package/ddpTargets.cmake"
mkdir -p "$work/user"
cat >"$work/user/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
if(CMAKE_VERSION VERSION_LESS 4)
  cmake_policy(VERSION 3.0) # of the many projects that ask for an old CMake
endif()
set(DDP_WITH_CUDA own)
find_package(ddp COMPONENTS ${components})
message(STATUS "found: ${ddp_FOUND}, the option: ${DDP_WITH_CUDA}")
find_package(ddp REQUIRED COMPONENTS ${components})
get_target_property(libraries ddp::torch INTERFACE_LINK_LIBRARIES)
get_target_property(flags ddp::torch INTERFACE_COMPILE_OPTIONS)
message(STATUS "targets: ${libraries}, flags: ${flags}")
message(STATUS "of the project: ${TORCH_LIBRARIES}")
EOF

configure() { # CMAKE_ARGUMENT...; sets `output`, and is true if that succeeds
  local code=0
  rm -rf -- "$work/build"
  output=$(cmake -S "$work/user" -B "$work/build" -G Ninja \
    -Dddp_DIR="$package" "$@" 2>&1) || code=$?
  output=$(tr -s ' \n' ' ' <<<"$output")
  return "$code"
}

fail() { echo "$output" && echo "$*" && exit 1; }

says() { # TEXT...
  local expected
  for expected; do
    [[ $output == *"$expected"* ]] || fail "it does not say: $expected"
  done
}

refuses() { # WHAT TEXT...
  ! configure -DTorch_DIR="$torch/share/cmake/Torch" ||
    fail "$1 was taken by a ddp built against 2.11.0"
  # A project that does not require ddp goes on, and may build it itself.
  says 'found: 0, the option: own' "${@:2}"
}

for version in 2.11.0 2.11.3; do
  make_torch "$version"
  configure -DTorch_DIR="$torch/share/cmake/Torch" ||
    fail "LibTorch $version was refused by a ddp built against 2.11.0"
  says 'targets: own_torch, flags: -DFLAG_OF_LIBTORCH;-DANOTHER' \
    'of the project: own_torch'
done
touch "$torch/lib/libc10_cuda.so"
configure -DTorch_DIR="$torch/share/cmake/Torch" ||
  fail 'a LibTorch with CUDA was refused by a ddp without CUDA'
says 'targets: ddp::torch_cpu,' 'of the project: ddp::torch'
for version in 2.10.0 2.12.0 2.1.0 3.11.0; do
  make_torch "$version"
  refuses "LibTorch $version" 'built against LibTorch 2.11.0' \
    "LibTorch $version was found" 'Torch_DIR'
done

make_torch 2.11.0
! configure -DTorch_DIR="$torch/share/cmake/Torch" -Dcomponents=mip ||
  fail 'a misspelt component was taken'
says 'there is no component mip'
for prefix in "$torch" "$torch/share/cmake"; do # torch.utils.cmake_prefix_path
  configure -DCMAKE_PREFIX_PATH="$prefix" ||
    fail "the LibTorch of CMAKE_PREFIX_PATH=$prefix was not found"
done
mkdir "$work/prefix/lib/ddp"
ln -s ../../../torch-2.11.0 "$work/prefix/lib/ddp/torch"
configure || fail 'the LibTorch that the link leads to was not found'
! configure -Dcomponents=mpi || fail 'a component that is not there was found'
says 'no ddp::mpi in this package. Install libddp-mpi, or build ddp where MPI'
touch "$package/ddpMpiTargets.cmake"
without_mpi=(-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_C_COMPILER_LOADED=ON)
! configure "${without_mpi[@]}" -Dcomponents=mpi ||
  fail 'ddp::mpi was found where MPI is missing'
says "ddp::mpi needs MPI's headers (Debian: libopenmpi-dev)"
configure "${without_mpi[@]}" '-Dcomponents=OPTIONAL_COMPONENTS;mpi' ||
  fail 'ddp was missing because an optional MPI is'
says 'found: 1'

echo 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")' \
  >>"$torch/share/cmake/Torch/TorchConfig.cmake"
refuses 'the old ABI' 'has the pre-C++11 ABI' 'cxx11-abi, or LibTorch 2.9'

make_torch 2.11.0
echo >"$torch/share/cmake/Caffe2/Caffe2Targets.cmake"
refuses 'a LibTorch without gloo' 'built without distributed support' \
  'USE_DISTRIBUTED=1'

make_torch 2.11.0
echo '  ::gloo::Context context_;' >"$torch/$c10d/ProcessGroupGloo.hpp"
refuses 'a LibTorch with objects of gloo' 'whose layout may not be that' \
  README.md

make_torch 2.11.0
make_package ON
refuses 'a LibTorch without CUDA' 'was built with CUDA' 'has none' \
  'build and install ddp against this one'

# LibTorch's own package would look for parts of a toolkit that ddp does not use.
toolkit=$work/toolkit
mkdir -p "$toolkit"/{bin,lib64,include/{crt,nv}}
touch "$toolkit"/{lib64/libcudart.so,include/{crt/host_defines.h,nv/target}} \
  "$toolkit/include"/{cuda_runtime,cublas_v2,cublasLt,cusolverDn,cusparse,nccl}.h
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.88"\n' \
  >"$toolkit/bin/nvcc"
chmod +x "$toolkit/bin/nvcc"
echo libcudart.so.13 >"$torch/lib/libc10_cuda.so"
configure -DTorch_DIR="$torch/share/cmake/Torch" \
  -DCUDAToolkit_ROOT="$toolkit" || fail 'a toolkit without NVTX was refused'
says 'targets: ddp::torch_cpu;' 'libtorch_cuda.so;' ';CUDA::cudart' \
  'of the project: ddp::torch'

make_torch 2.8.0
rm -rf -- "$work/build"
! output=$(cmake -S "$source" -B "$work/build" -G Ninja \
  -DTorch_DIR="$torch/share/cmake/Torch" 2>&1) ||
  fail 'ddp was configured with LibTorch 2.8'
output=$(tr -s ' \n' ' ' <<<"$output")
says 'LibTorch 2.8.0' 'is too old'
