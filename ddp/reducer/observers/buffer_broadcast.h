#pragma once

#include <common/heartbeat_page.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/module_state.h>
#include <ddp/process_group/async_broadcast.h>
#include <ddp/reducer/core/reduction_observer.h>

namespace ddp::detail {

/// Broadcasts one rank's buffers after each backward pass.
class BufferBroadcast final : public ReductionObserver {
 public:
  BufferBroadcast(std::function<NamedTensors()> buffers, ProcessGroup group)
      : buffers_(std::move(buffers)), group_(std::move(group)) {}

  /// The current buffers.
  std::vector<at::Tensor> tensors() const {
    return buffers_().tensors;
  }

  void on_all_launched(const Reduction& reduction) override {
    const heartbeat::Activity activity(kBufferBroadcast);
    broadcast_.start(tensors(), group_, reduction.root);
  }
  void on_grads_populated() override {
    const heartbeat::Activity activity(kBufferBroadcast);
    broadcast_.finish();
  }

 private:
  std::function<NamedTensors()> buffers_;
  ProcessGroup group_;
  AsyncBroadcast broadcast_;
};

} // namespace ddp::detail
