#pragma once

#include <c10/core/Device.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

/// How `init_process_group` forms the group. Every option is optional; what the
/// program sets wins over the environment, which wins over the default.
struct ProcessGroupOptions {
  /// "gloo" (CPU), "nccl" (CUDA, with gloo for CPU tensors) or "auto" (nccl
  /// where every local rank has a GPU, else gloo). Environment: DDP_BACKEND.
  TORCH_ARG(std::string, backend);

  /// Bounds every wait: for the other ranks to arrive, and for each collective.
  /// Environment: DDP_TIMEOUT, in seconds. Default: 10 minutes.
  TORCH_ARG(std::optional<std::chrono::milliseconds>, timeout);

  /// This process's rank, in [0, world_size). Environment: RANK.
  TORCH_ARG(std::optional<int64_t>, rank);

  /// Number of processes. Environment: WORLD_SIZE. Default: 1.
  TORCH_ARG(std::optional<int64_t>, world_size);

  /// Host name or address of rank 0. Environment: MASTER_ADDR.
  TORCH_ARG(std::string, master_addr);

  /// TCP port on that host. Environment: MASTER_PORT.
  TORCH_ARG(std::optional<int64_t>, master_port);

  /// Where tensors live: `torch::kCPU` or `torch::kCUDA`, the latter with an
  /// index or, without one, the GPU of the local rank. Environment: DDP_DEVICE
  /// ("cpu", "cuda", "cuda:1"). Default: CUDA where the backend is unset or
  /// nccl and no host has more ranks than usable GPUs, else CPU.
  TORCH_ARG(std::optional<c10::Device>, device);

  /// Whether an exception that nobody catches is told to the other ranks, whose
  /// waits then throw with its message, and written to the file that
  /// TORCHELASTIC_ERROR_FILE names, for torchrun's report. To that end
  /// `init_process_group` puts a handler before the one of `std::terminate`.
  TORCH_ARG(bool, report_uncaught) = true;
};

} // namespace ddp
