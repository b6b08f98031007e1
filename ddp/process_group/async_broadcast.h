#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// Broadcasts the values of many small tensors from one rank, in one flat
/// message for each dtype and device.
class AsyncBroadcast {
 public:
  /// Collective. The tensors keep their values until `finish`.
  void start(
      const std::vector<at::Tensor>& tensors,
      const ProcessGroup& group,
      int64_t root = 0);

  /// Waits, and writes the values into the tensors. Autograd does not record
  /// the change, so a backward pass through earlier results still works.
  void finish();

 private:
  struct Message {
    std::vector<at::Tensor> tensors;
    at::Tensor flat;
    Work work;
  };
  std::vector<Message> messages_;
  bool receives_ = false;
};

} // namespace ddp::detail
