#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/export.h>

#include <cstddef>
#include <memory>

namespace ddp::detail {

/// Memory for the batches of a data loader, used again once nobody holds the
/// batch: the operating system's fresh pages cost as much as filling them.
class DDP_API BatchMemory {
 public:
  /// Keeps the memory of at most `kept` tensors while nobody uses it. With
  /// `pinned` it is pinned for copies to a GPU, where there is one; LibTorch
  /// keeps such memory by itself.
  BatchMemory(size_t kept, bool pinned);

  /// A tensor on the CPU with arbitrary contents; it may outlive this object.
  /// To be called from any thread, as `pin`.
  at::Tensor empty(c10::IntArrayRef sizes, c10::ScalarType dtype) const;

  /// Replaces `tensor` by a copy in pinned memory, where there is to be one.
  void pin(at::Tensor& tensor) const;

 private:
  struct Blocks;
  bool pinned_;
  std::shared_ptr<Blocks> blocks_;
};

} // namespace ddp::detail
