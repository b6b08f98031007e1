#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <ddp/internal/export.h>
#include <ddp/tensor_traversal.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace ddp::detail {

/// Memory for the batches of a data loader, reused once a batch is released,
/// since fresh pages from the operating system cost as much as filling the
/// pages.
class DDP_API BatchMemory {
 public:
  /// Keeps the unused memory of at most `kept` tensors. If `pinned` is true and
  /// a GPU exists, memory is pinned for copies to the GPU; LibTorch caches
  /// pinned memory.
  BatchMemory(size_t kept, bool pinned);

  /// Returns a CPU tensor with arbitrary contents, which may outlive this
  /// object. Any thread may call `empty` and `pin`.
  at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype) const;

  /// Replaces `tensor` with a copy in pinned memory, if memory is pinned.
  void pin(at::Tensor& tensor) const;

 private:
  struct Blocks;
  bool pinned_;
  std::shared_ptr<Blocks> blocks_;
};

/// One tensor of a batch, stacked from the samples' tensors as by
/// `torch::stack`, sample by sample and from several threads.
class DDP_API StackedTensor {
 public:
  /// Writes row `row` of `rows`; `index` is the sample's index, for messages.
  /// Throws `c10::ValueError` if the shape or dtype differs from the first
  /// sample's, or the sample is not dense on the CPU.
  void put(
      size_t row,
      size_t rows,
      const at::Tensor& sample,
      size_t index,
      const BatchMemory& memory);

  /// The tensor, of shape [rows, ...], once all rows are written.
  const at::Tensor& tensor() const {
    return tensor_;
  }

 private:
  std::once_flag allocated_;
  at::Tensor tensor_;
};

/// Copies batches to a device on a separate stream: the device copies one batch
/// while computing with the previous batch. On the CPU, nothing is copied.
class DDP_API DeviceCopies {
 public:
  explicit DeviceCopies(c10::Device device);

  bool are_needed() const {
    return stream_.has_value();
  }

  /// Starts to copy the tensors inside `batch`, and replaces the tensors with
  /// the copies.
  template <typename Batch>
  void start(Batch& batch) {
    visit_tensors(batch, [&](at::Tensor& tensor) { start_one(tensor); });
    record();
  }

  /// Makes the current stream wait for the last copy. The batch's memory may be
  /// reused once that stream has finished its current work.
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
