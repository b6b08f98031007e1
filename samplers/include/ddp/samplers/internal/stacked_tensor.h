#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/export.h>
#include <ddp/samplers/internal/batch_memory.h>

#include <cstddef>
#include <mutex>

namespace ddp::detail {

/// One tensor of a batch, of its samples' tensors: `torch::stack`, sample by
/// sample, from several threads.
class DDP_API StackedTensor {
 public:
  /// Writes row `row` of `rows`; `index` is the sample's, for messages. The
  /// first sample says what the others' shape and dtype have to be: throws
  /// `c10::ValueError` for another, or for one that is not dense on the CPU.
  void put(
      size_t row,
      size_t rows,
      const at::Tensor& sample,
      size_t index,
      const BatchMemory& memory);

  /// Of shape [rows, ...], once all rows are written.
  const at::Tensor& tensor() const {
    return tensor_;
  }

 private:
  std::once_flag allocated_;
  at::Tensor tensor_;
};

} // namespace ddp::detail
