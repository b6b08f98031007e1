#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace ddp::detail {

/// Reusable memory for repeated copies of the same tensors: fresh memory costs
/// more than the copy, since the system must find and clear pages.
class SnapshotMemory {
 public:
  /// After this call, copies may reuse the memory of earlier copies.
  void begin() {
    next_ = 0;
  }

  /// Returns the values as stored in a file (`plain_tensor`), in separate
  /// memory.
  at::Tensor copy(const at::Tensor& tensor);

 private:
  std::vector<at::Tensor> copies_;
  size_t next_ = 0;
};

} // namespace ddp::detail
