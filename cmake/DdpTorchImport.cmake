# Defines `ddp::torch`, and `ddp::torch_cpu` without CUDA, from what DdpTorch has
# found.
#
# LibTorch's own TorchConfig.cmake stops with an error where a CUDA build of
# LibTorch meets a machine without a CUDA toolkit, with another one, or with
# parts of one. Without one that fits, these targets are torch_cpu and c10 alone,
# which is all that training on CPUs needs.
if(TARGET ddp::torch)
  return()
endif()

# What every program needs, and all that one needs that computes nothing.
add_library(ddp::torch_cpu INTERFACE IMPORTED GLOBAL)
target_include_directories(ddp::torch_cpu SYSTEM INTERFACE
  "${DDP_TORCH_PREFIX}/include"
  "${DDP_TORCH_PREFIX}/include/torch/csrc/api/include")
target_link_directories(ddp::torch_cpu INTERFACE "${DDP_TORCH_PREFIX}/lib")
target_compile_features(ddp::torch_cpu INTERFACE ${DDP_CXX_STANDARD})
find_package(Threads REQUIRED)
target_link_libraries(ddp::torch_cpu INTERFACE
  "${DDP_TORCH_PREFIX}/lib/libtorch_cpu.so" "${DDP_TORCH_PREFIX}/lib/libc10.so"
  Threads::Threads)

add_library(ddp::torch INTERFACE IMPORTED GLOBAL)
target_link_libraries(ddp::torch INTERFACE ddp::torch_cpu)

if(DDP_TORCH_CUDA)
  # Nothing in a program names a symbol of torch_cuda; it registers itself when
  # it is loaded, so the linker must not drop it.
  target_link_libraries(ddp::torch INTERFACE
    -Wl,--no-as-needed "${DDP_TORCH_PREFIX}/lib/libtorch_cuda.so" -Wl,--as-needed
    "${_ddp_c10_cuda}" ${_ddp_cudart})
  set(_ddp_includes ${DDP_CUDA_INCLUDE_DIRS})
  if(TARGET CUDA::cudart) # has these
    list(REMOVE_ITEM _ddp_includes ${CUDAToolkit_INCLUDE_DIRS})
  endif()
  target_include_directories(ddp::torch SYSTEM INTERFACE
    "${DDP_NCCL_INCLUDE_DIR}" ${_ddp_includes})
endif()
