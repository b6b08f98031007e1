#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::detail {

/// Whether a tensor's memory holds the values that it reads as. LibTorch
/// negates and conjugates lazily, by a flag on a view, and has zeros without
/// memory: whoever reads raw memory asks this first, and takes LibTorch's
/// operators where the answer is no.
inline bool has_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() &&
      !tensor.is_neg() && !tensor.is_conj() && !tensor._is_zerotensor();
}

/// A strided tensor whose memory holds these values: `tensor`, or a copy. Lazy
/// zeros are not resolved by `resolve_neg()`.
inline at::Tensor with_plain_memory(const at::Tensor& tensor) {
  return tensor._is_zerotensor() ? tensor.clone()
                                 : tensor.resolve_conj().resolve_neg();
}

} // namespace ddp::detail
