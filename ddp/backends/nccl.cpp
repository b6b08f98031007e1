#include <ddp/backends/nccl.h>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

namespace ddp::backends::nccl {
namespace {

/// The constructor of ProcessGroupNCCL reads these settings only from the
/// environment. By default, its watchdog ends the process a minute after a
/// collective failed, or the whole job eight minutes after a failure on any
/// rank. Settings of the user are kept, except torchrun's, which also ends the
/// process.
void leave_errors_to_us() {
  const auto prefer = [](const char* name, const char* value) {
    setenv(name, value, /*overwrite=*/0);
  };
  const char* handling = std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  const bool by_torchrun = std::getenv("TORCHELASTIC_RUN_ID") && handling &&
      std::string(handling) == "1";
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", by_torchrun); // CleanUpOnly
  prefer("TORCH_NCCL_DUMP_ON_TIMEOUT", "0"); // write_flight_record does it
  prefer("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000");
}

/// CUDA's text does not distinguish a missing driver from an old driver.
bool is_driver_missing() {
  int version = 0;
  return cudaDriverGetVersion(&version) != cudaSuccess || version == 0;
}

/// Whether the host has a display controller by NVIDIA, according to PCI.
bool is_gpu_built_in() {
  constexpr auto kNvidia = "0x10de";
  constexpr auto kDisplay = "0x03";
  const auto starts = [](const std::filesystem::path& path, const char* text) {
    std::string content;
    std::ifstream(path) >> content;
    return content.rfind(text, 0) == 0;
  };
  std::error_code error;
  for (const auto& device :
       std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    if (starts(device.path() / "vendor", kNvidia) &&
        starts(device.path() / "class", kDisplay)) {
      return true;
    }
  }
  return false;
}

} // namespace

bool available() {
  return true;
}

UsableGpus usable_gpus() {
  UsableGpus result;
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    clear_last_error();
    result.note = !is_driver_missing() ? cudaGetErrorString(status)
        : is_gpu_built_in()            ? "its NVIDIA GPU has no driver"
                                       : "";
    return result;
  }
  for (int i = 0; i < count; ++i) {
    std::array<char, 32> address{};
    if (cudaDeviceGetPCIBusId(address.data(), address.size(), i) !=
        cudaSuccess) {
      clear_last_error();
      continue;
    }
    result.bus_addresses.emplace_back(address.data());
  }
  return result;
}

c10::intrusive_ptr<c10d::Backend> create(
    const BackendOptions& options,
    c10::Device device) {
  leave_errors_to_us();
  const c10::cuda::CUDAGuard guard(device);
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create(
      /*is_high_priority_stream=*/true);
  nccl_options->timeout = options.timeout;
  nccl_options->group_name = options.name; // identifies flight records
  // Not bound to the device: a model may use several devices.
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      options.store, options.rank, options.size, nccl_options);
}

std::string write_flight_record(int64_t rank) {
  const auto record = c10d::dump_nccl_trace(
      /*includeCollectives=*/true,
      /*includeStackTraces=*/false,
      /*onlyActive=*/false);
  if (record.empty()) {
    return "";
  }
  static std::mutex mutex; // several groups may fail at once
  const std::lock_guard<std::mutex> lock(mutex);
  auto& writer = c10d::DebugInfoWriter::getWriter(static_cast<int>(rank));
  writer.write(record);
  return writer.getWriterTarget();
}

bool has_memory_pools() {
  return c10::cuda::CUDACachingAllocator::name() == "native";
}

void clear_last_error() {
  cudaGetLastError();
}

bool is_capturing(c10::Device device) {
  auto status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(
          c10::cuda::getCurrentCUDAStream(device.index()), &status) !=
      cudaSuccess) {
    // The query fails for the default stream while another stream is captured.
    clear_last_error();
    return false;
  }
  return status != cudaStreamCaptureStatusNone;
}

} // namespace ddp::backends::nccl
