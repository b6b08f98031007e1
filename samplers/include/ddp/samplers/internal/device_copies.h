#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <ddp/export.h>
#include <ddp/tensor_traversal.h>

#include <optional>
#include <utility>

namespace ddp::detail {

/// Copies batches to a device on a stream of their own, so that the device
/// copies one while it computes with the one before. On the CPU, where all
/// memory is the device's, nothing is copied.
class DDP_API DeviceCopies {
 public:
  explicit DeviceCopies(c10::Device device);

  bool are_needed() const {
    return stream_.has_value();
  }

  /// Starts to copy the tensors inside `batch`, which are replaced by those on
  /// the device.
  template <typename Batch>
  void start(Batch& batch) {
    visit_tensors(batch, [&](at::Tensor& tensor) { start_one(tensor); });
    record();
  }

  /// Makes the current stream wait for the batch started last. Its memory may
  /// be used again once that stream is done with what it has then.
  template <typename Batch>
  void finish(Batch& batch) {
    wait();
    visit_tensors(batch, [&](at::Tensor& tensor) { finish_one(tensor); });
  }

 private:
  void start_one(at::Tensor& tensor) const;
  void finish_one(const at::Tensor& tensor) const;
  void record();
  void wait();

  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> copied_;
};

} // namespace ddp::detail
