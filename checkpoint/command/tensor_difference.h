#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ddp::command {

/// How far values may be apart, as with torch.isclose; without any, they have
/// to be equal bit by bit.
struct Tolerance {
  double relative = 0;
  double absolute = 0;

  bool any() const {
    return relative > 0 || absolute > 0;
  }
};

/// Where two tensors of one shape and dtype differ.
struct TensorDifference {
  int64_t elements = 0;
  /// Of these, where one is NaN at least.
  int64_t with_nan = 0;
  /// Of the others.
  double largest = 0;
};

TensorDifference difference_of(
    const at::Tensor& a,
    const at::Tensor& b,
    const Tolerance& tolerance);

} // namespace ddp::command
