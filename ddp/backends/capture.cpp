#include <ddp/backends/capture.h>

#include <ddp/backends/nccl.h>
#include <ddp/internal/check.h>

#include <atomic>

namespace ddp::backends {
namespace {

std::atomic<CaptureQuery> other_devices{nullptr};

} // namespace

bool is_capturing(c10::Device device) {
  if (device.is_cpu()) {
    return false;
  }
  if (device.is_cuda()) {
    return nccl::is_capturing(device);
  }
  const CaptureQuery query = other_devices;
  return query && query(device);
}

void check_not_capturing(c10::Device device, const char* reason) {
  DDP_CHECK(!is_capturing(device), "capturing a CUDA graph: {}", reason);
}

void set_capture_query(CaptureQuery query) {
  other_devices = query;
}

} // namespace ddp::backends
