# Finds LibTorch's folder and refuses what ddp cannot use. Sets DDP_TORCH_REFUSAL
# (why, or nothing), DDP_TORCH_PREFIX, DDP_TORCH_VERSION, DDP_TORCH_CUDA (whether
# programs are linked with CUDA), DDP_CUDA_INCLUDE_DIRS, DDP_CUDART_FOLDER (the
# wheel's, if it has one), DDP_CXX_STANDARD and DDP_BACKENDS. The build and the
# installed package include it, with DDP_WANTS_CUDA; DDP_TORCH_HINT is where the
# latter looks besides.
set(DDP_TORCH_REFUSAL "")

if(Torch_DIR)
  cmake_path(ABSOLUTE_PATH Torch_DIR NORMALIZE OUTPUT_VARIABLE _ddp_torch_dir)
else()
  string(REPLACE ":" ";" _ddp_env_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  find_path(DDP_TORCH_CONFIG_DIR TorchConfig.cmake
    PATHS $ENV{Torch_DIR} ${CMAKE_PREFIX_PATH} ${_ddp_env_prefixes}
      ${DDP_TORCH_HINT}
    PATH_SUFFIXES share/cmake/Torch Torch)
  set(_ddp_torch_dir "${DDP_TORCH_CONFIG_DIR}")
endif()
if(NOT EXISTS "${_ddp_torch_dir}/TorchConfig.cmake")
  string(CONCAT DDP_TORCH_REFUSAL
    "ddp: LibTorch was not found. Unpack LibTorch, or `pip install torch`, and "
    "point at it: -DCMAKE_PREFIX_PATH=<folder>/torch or "
    "-DTorch_DIR=<folder>/torch/share/cmake/Torch")
  return()
endif()
cmake_path(SET DDP_TORCH_PREFIX NORMALIZE "${_ddp_torch_dir}/../../..")
string(REGEX REPLACE "/$" "" DDP_TORCH_PREFIX "${DDP_TORCH_PREFIX}")

file(STRINGS "${_ddp_torch_dir}/TorchConfigVersion.cmake" _ddp_version_line
  REGEX "set\\(PACKAGE_VERSION ")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" DDP_TORCH_VERSION "${_ddp_version_line}")

# Older packages of LibTorch for Linux have the ABI of GCC 4.
file(STRINGS "${_ddp_torch_dir}/TorchConfig.cmake" _ddp_old_abi
  REGEX "_GLIBCXX_USE_CXX11_ABI=0")
if(_ddp_old_abi)
  string(CONCAT DDP_TORCH_REFUSAL
    "ddp: the LibTorch in ${DDP_TORCH_PREFIX} has the pre-C++11 ABI. Take the "
    "download that is named cxx11-abi, or LibTorch 2.9 or later.")
  return()
endif()
set(_ddp_definitions "${_ddp_torch_dir}/../Caffe2/Caffe2Targets.cmake")
if(EXISTS "${_ddp_definitions}")
  file(STRINGS "${_ddp_definitions}" _ddp_with_gloo REGEX "USE_C10D_GLOO")
  if(NOT _ddp_with_gloo)
    string(CONCAT DDP_TORCH_REFUSAL
      "ddp: the LibTorch in ${DDP_TORCH_PREFIX} was built without distributed "
      "support (gloo). Take LibTorch's download or wheel, or build it with "
      "USE_DISTRIBUTED=1 and USE_GLOO=1.")
    return()
  endif()
endif()
# LibTorch carries gloo and not its headers. Those that ddp is built with may be
# of another gloo: in LibTorch's classes there are only pointers to gloo's.
set(_ddp_gloo_header
  "${DDP_TORCH_PREFIX}/include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp")
if(EXISTS "${_ddp_gloo_header}")
  file(STRINGS "${_ddp_gloo_header}" _ddp_gloo_members
    REGEX "^ *(const )?(::)?gloo::[A-Za-z_:]+ +[A-Za-z_]+ *(;|=|{)")
  if(_ddp_gloo_members)
    string(CONCAT DDP_TORCH_REFUSAL
      "ddp: c10d::ProcessGroupGloo of LibTorch ${DDP_TORCH_VERSION} holds "
      "objects of gloo's (${_ddp_gloo_members}), whose layout may not be that "
      "of the headers of gloo that ddp has. Take a version in README.md.")
    return()
  endif()
endif()

set(DDP_CXX_STANDARD cxx_std_17)
if(DDP_TORCH_VERSION VERSION_GREATER_EQUAL 2.13) # its headers ask for C++20
  set(DDP_CXX_STANDARD cxx_std_20)
endif()

# The CUDA major that this LibTorch was built for, read off the library that
# carries it: neither the wheel nor the zip says so in CMake's language before
# a toolkit is there.
set(DDP_TORCH_CUDA OFF)
set(_ddp_cuda_note "")
set(_ddp_c10_cuda "${DDP_TORCH_PREFIX}/lib/libc10_cuda.so")
if(NOT DDP_WANTS_CUDA)
  set(_ddp_cuda_note "DDP_WITH_CUDA is off")
elseif(NOT EXISTS "${_ddp_c10_cuda}")
  set(_ddp_cuda_note "this LibTorch has no CUDA")
else()
  file(STRINGS "${_ddp_c10_cuda}" _ddp_cudart REGEX "libcudart\\.so\\.[0-9]+")
  string(REGEX MATCH "libcudart\\.so\\.([0-9]+)" _ddp_cudart "${_ddp_cudart}")
  set(_ddp_cuda_major "${CMAKE_MATCH_1}")
  # CMake 3.25 as released sets a property of CUDA::nvToolsExt in a project that
  # asks for 3.25, although CUDA 13 has no such library.
  set(_ddp_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit QUIET)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${_ddp_minimum})
  # Some toolkits are little more than the compiler; the wheel brings the rest.
  cmake_path(SET _ddp_wheels NORMALIZE "${DDP_TORCH_PREFIX}/../nvidia")
  file(GLOB _ddp_folders "${CUDAToolkit_TARGET_DIR}/targets/*/include" "${_ddp_wheels}/*/include"
    "${CUDAToolkit_TARGET_DIR}/include/cccl" "${_ddp_wheels}/*/include/cccl")
  list(PREPEND _ddp_folders ${CUDAToolkit_INCLUDE_DIRS} "${CUDAToolkit_TARGET_DIR}/include")
  find_path(DDP_NCCL_INCLUDE_DIR nccl.h
    PATHS "${_ddp_wheels}/nccl/include" NO_DEFAULT_PATH)
  find_path(DDP_NCCL_INCLUDE_DIR nccl.h HINTS ${_ddp_folders})
  set(_ddp_missing "")
  set(DDP_CUDA_INCLUDE_DIRS "")
  # What <ATen/cuda/CUDAContext.h> includes.
  foreach(_ddp_header cuda_runtime.h crt/host_defines.h cublas_v2.h cublasLt.h
      cusolverDn.h cusparse.h nv/target)
    list(APPEND _ddp_missing ${_ddp_header})
    foreach(_ddp_folder ${_ddp_folders})
      if(EXISTS "${_ddp_folder}/${_ddp_header}")
        list(APPEND DDP_CUDA_INCLUDE_DIRS "${_ddp_folder}")
        list(REMOVE_ITEM _ddp_missing ${_ddp_header})
        break()
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES DDP_CUDA_INCLUDE_DIRS)
  # The machine that runs the programs may have the wheel's cudart alone.
  file(GLOB _ddp_cudart "${_ddp_wheels}/*/lib/libcudart.so.${_ddp_cuda_major}")
  if(_ddp_cudart)
    cmake_path(GET _ddp_cudart PARENT_PATH DDP_CUDART_FOLDER)
  endif()
  if(TARGET CUDA::cudart)
    set(_ddp_cudart CUDA::cudart)
  elseif(NOT _ddp_cudart)
    list(APPEND _ddp_missing "libcudart.so.${_ddp_cuda_major}")
  endif()
  list(JOIN _ddp_missing ", " _ddp_missing)
  if(NOT CUDAToolkit_VERSION)
    set(_ddp_cuda_note "no CUDA toolkit was found; for GPUs install CUDA ${_ddp_cuda_major} and put nvcc on PATH")
  elseif(NOT CUDAToolkit_VERSION_MAJOR EQUAL _ddp_cuda_major)
    set(_ddp_cuda_note "the CUDA toolkit is ${CUDAToolkit_VERSION} and LibTorch was built for CUDA ${_ddp_cuda_major}; for GPUs install CUDA ${_ddp_cuda_major}, or point -DCUDAToolkit_ROOT at it")
  elseif(_ddp_missing)
    set(_ddp_cuda_note "neither the CUDA toolkit in ${CUDAToolkit_TARGET_DIR} nor LibTorch's wheel has ${_ddp_missing}; for GPUs install all of CUDA ${_ddp_cuda_major}")
  elseif(NOT DDP_NCCL_INCLUDE_DIR)
    set(_ddp_cuda_note "nccl.h was not found; for GPUs install libnccl-dev, or point -DDDP_NCCL_INCLUDE_DIR at its folder")
  else()
    set(DDP_TORCH_CUDA ON)
  endif()
endif()

set(DDP_BACKENDS "gloo (CPU)")
if(DDP_TORCH_CUDA)
  string(APPEND DDP_BACKENDS ", nccl (CUDA ${CUDAToolkit_VERSION})")
else()
  string(APPEND DDP_BACKENDS "; no nccl: ${_ddp_cuda_note}")
endif()
