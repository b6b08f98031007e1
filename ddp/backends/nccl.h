#pragma once

#include <c10/core/Device.h>
#include <ddp/backends/common/backend.h>

#include <vector>

namespace ddp::backends::nccl {

/// Whether this build has CUDA and NCCL.
bool available();

/// The GPUs that a process may use.
struct UsableGpus {
  /// The bus address of each GPU, in CUDA's order. Two processes with the same
  /// address share the GPU, even if its index differs between them.
  std::vector<std::string> bus_addresses;
  /// The reason why this process cannot use the host's GPUs. Empty if the
  /// process can, or if the host has neither an NVIDIA driver nor an NVIDIA
  /// GPU; never empty in a build without CUDA.
  std::string note;
};

UsableGpus usable_gpus();

/// Creates LibTorch's ProcessGroupNCCL, on streams of high priority;
/// `eagerConnectSingleDevice` connects the backend for tensors on `device`. The
/// first collective with a tensor on another GPU (for a model on several GPUs)
/// connects the backend for that GPU. In contrast to LibTorch's default, an
/// error or a timeout of a collective does not end the process; the caller must
/// poll `getError`. Throws `c10::Error` if `available()` is false.
c10::intrusive_ptr<c10d::Backend> create(
    const BackendOptions& options,
    c10::Device device);

/// Writes NCCL's flight record of this process to a file that `torchfrtrace`
/// can read, and returns the file's path; empty if recording is off
/// (TORCH_FR_BUFFER_SIZE=0). TORCH_FR_DUMP_TEMP_FILE sets the path, to which
/// the rank is appended.
std::string write_flight_record(int64_t rank);

/// Whether LibTorch's allocator for GPUs can use NCCL's memory in a pool, which
/// the allocator cudaMallocAsync (PYTORCH_CUDA_ALLOC_CONF) cannot.
bool has_memory_pools();

/// Clears the error of this thread's last CUDA call, which the next check of a
/// kernel launch would throw.
void clear_last_error();

/// Whether the current stream of `device`, a GPU, is capturing a CUDA graph.
bool is_capturing(c10::Device device);

} // namespace ddp::backends::nccl
