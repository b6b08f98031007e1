#include <ddp/samplers/internal/batch_memory.h>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <ddp/support/current_stream.h>

namespace ddp::detail {

DeviceCopies::DeviceCopies(c10::Device device) : device_(device) {
  if (!device.is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    device_ = device.has_index() ? device : guard.getDevice();
    stream_ = guard.getStreamFromGlobalPool(device_, /*isHighPriority=*/false);
  }
}

void DeviceCopies::start_one(at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.device() == device_) {
    return;
  }
  // The host would wait for a copy from memory that is not pinned.
  if (device_.is_cuda() && tensor.is_cpu() && !tensor.is_pinned()) {
    tensor = tensor.pin_memory();
  }
  const c10::StreamGuard guard(*stream_);
  tensor = tensor.to(device_, /*non_blocking=*/true);
}

void DeviceCopies::record() {
  copied_.emplace(device_.type());
  copied_->record(*stream_);
}

void DeviceCopies::wait() {
  copied_->block(current_stream(device_));
}

void DeviceCopies::finish_one(const at::Tensor& tensor) const {
  if (tensor.defined() && tensor.device() == device_) {
    tensor.record_stream(current_stream(device_));
  }
}

} // namespace ddp::detail
