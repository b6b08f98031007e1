#pragma once

#include <c10/core/Device.h>
#include <ddp/backends/common/backend.h>

#include <vector>

namespace ddp::backends::nccl {

/// Whether this build has CUDA and NCCL.
bool available();

/// The GPUs that a process may use.
struct UsableGpus {
  /// Bus address of each, in CUDA's order: two processes that name the same
  /// one share it, whatever index they know it by.
  std::vector<std::string> bus_addresses;
  /// Why there are none, if so; empty if the host has none.
  std::string note;
};

UsableGpus usable_gpus();

/// LibTorch's ProcessGroupNCCL, on streams of high priority;
/// `eagerConnectSingleDevice` connects it for tensors on `device`. A tensor on
/// another GPU, of a model on several, connects it for that one too, within its
/// first collective. An error or a timeout of a collective does not end the
/// process, as it does by default: `getError` tells of it, and someone has to
/// look. Throws `c10::Error` if `available()` is false.
c10::intrusive_ptr<c10d::Backend> create(
    const BackendOptions& options,
    c10::Device device);

/// Writes what the flight recorder knows of this process's collectives to a
/// file, in the form that `torchfrtrace` reads, and returns its path; empty
/// where nothing is recorded (TORCH_FR_BUFFER_SIZE=0). TORCH_FR_DUMP_TEMP_FILE
/// chooses the path, to which the rank is added.
std::string write_flight_record(int64_t rank);

/// Forgets the error of this thread's last call of CUDA, which the next check
/// of a kernel's launch would throw.
void clear_last_error();

/// Whether work for `device` is being recorded into a CUDA graph, on its
/// current stream.
bool is_capturing(c10::Device device);

} // namespace ddp::backends::nccl
