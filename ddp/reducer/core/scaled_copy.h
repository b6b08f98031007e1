#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::detail {

/// A number, also in the form in which LibTorch's operators get numbers.
struct Factor {
  double value = 1;
  at::Tensor wrapped;
};

Factor make_factor(double value);

/// Sets `target` to `source` times `factor`. Both tensors have the same shape,
/// dtype and device. The result is bit-identical to that of `at::mul_out`,
/// whose dispatch costs several times the multiplication of a small gradient.
void scaled_copy(
    at::Tensor& target,
    const at::Tensor& source,
    const Factor& factor);

} // namespace ddp::detail
