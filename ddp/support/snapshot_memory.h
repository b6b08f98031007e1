#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace ddp::detail {

/// Memory for copies of the same tensors, time and again: fresh memory costs
/// more than the copy, since the system has to find and clear its pages.
class SnapshotMemory {
 public:
  /// From here on copies may take the memory of the copies before.
  void begin() {
    next_ = 0;
  }

  /// The values as a file has them (`plain_tensor`), in memory of their own.
  at::Tensor copy(const at::Tensor& tensor);

 private:
  std::vector<at::Tensor> copies_;
  size_t next_ = 0;
};

} // namespace ddp::detail
