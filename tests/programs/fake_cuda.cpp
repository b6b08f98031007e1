// Preloaded into a process, pretends that there are DDP_FAKE_GPUS GPUs or, for
// "old", that the driver is too old.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  const char* gpus = std::getenv("DDP_FAKE_GPUS");
  if (gpus && std::string(gpus) == "old") {
    *count = 0;
    return cudaErrorInsufficientDriver;
  }
  *count = gpus ? std::atoi(gpus) : 0;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

extern "C" cudaError_t CUDARTAPI
cudaDeviceGetPCIBusId(char* address, int length, int device) {
  std::snprintf(address, static_cast<size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

extern "C" cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  *version = 11000;
  return cudaSuccess;
}
