#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

namespace ddp::detail {

/// Whether a tensor's memory holds its values. LibTorch negates and conjugates
/// lazily, with a flag on a view, and represents some zero tensors without
/// memory. Code must call this before reading raw memory; if the result is
/// false, the code must use LibTorch's operators.
inline bool has_plain_memory(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() &&
      !tensor.is_neg() && !tensor.is_conj() && !tensor._is_zerotensor();
}

/// A strided tensor whose memory holds the values of `tensor`: `tensor` itself,
/// or a copy. `resolve_neg()` does not resolve lazy zeros.
inline at::Tensor with_plain_memory(const at::Tensor& tensor) {
  return tensor._is_zerotensor() ? tensor.clone()
                                 : tensor.resolve_conj().resolve_neg();
}

/// A view of complex numbers as pairs of real numbers; other tensors unchanged.
inline at::Tensor as_real(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

/// A view of a contiguous tensor's memory, with the bytes of each value in a
/// last dimension. All backends support bytes, but not all dtypes.
inline at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.unsqueeze(-1).view(at::kByte);
}

} // namespace ddp::detail
