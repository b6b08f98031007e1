#pragma once

#include <c10/core/Device.h>
#include <ddp/backends/backend.h>

#include <string>
#include <vector>

namespace ddp::backends::nccl {

/// Whether this build has CUDA and NCCL.
bool available();

/// The GPUs that a process may use.
struct UsableGpus {
  /// Bus address of each, in CUDA's order: two processes that name the same
  /// one share it, whatever index they know it by.
  std::vector<std::string> bus_addresses;
  /// Why there are none, if so.
  std::string note;
};

UsableGpus usable_gpus();

/// LibTorch's ProcessGroupNCCL, for tensors on `device`. Collective. Throws
/// `c10::Error` where `available()` is false.
c10::intrusive_ptr<c10d::Backend> create(
    const BackendOptions& options,
    c10::Device device);

} // namespace ddp::backends::nccl
