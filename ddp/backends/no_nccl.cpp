#include <ddp/backends/nccl.h>

#include <ddp/internal/check.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace ddp::backends::nccl {

bool available() {
  return false;
}

UsableGpus usable_gpus() {
  return {{}, "this build of ddp has no CUDA"}; // the host may have GPUs
}

c10::intrusive_ptr<c10d::Backend> create(
    const BackendOptions& /*options*/,
    c10::Device device) {
  DDP_THROW(
      Error,
      "backend nccl for device {}: this build of ddp has no CUDA. Build ddp "
      "where the CUDA toolkit of LibTorch's version is installed, or use "
      "backend gloo",
      device);
}

std::string write_flight_record(int64_t /*rank*/) {
  return "";
}

bool has_memory_pools() {
  return false;
}

void clear_last_error() {}

bool is_capturing(c10::Device /*device*/) {
  return false;
}

} // namespace ddp::backends::nccl
