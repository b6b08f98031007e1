#include <ddp/backends/nccl.h>

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <array>

namespace ddp::backends::nccl {

bool available() {
  return true;
}

UsableGpus usable_gpus() {
  UsableGpus result;
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError(); // so that no later call reports this one
    result.note = cudaGetErrorString(status);
    return result;
  }
  for (int i = 0; i < count; ++i) {
    std::array<char, 32> address{};
    if (cudaDeviceGetPCIBusId(address.data(), address.size(), i) !=
        cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    result.bus_addresses.emplace_back(address.data());
  }
  return result;
}

c10::intrusive_ptr<c10d::Backend> create(
    const BackendOptions& options,
    c10::Device device) {
  // NCCL binds a communicator to the current device.
  c10::cuda::set_device(device.index());
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  nccl_options->timeout = options.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      options.store, options.rank, options.size, nccl_options);
}

} // namespace ddp::backends::nccl
