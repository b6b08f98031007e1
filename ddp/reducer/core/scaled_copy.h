#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::detail {

/// Sets `target` to `source` times `factor`. Both tensors have the same shape,
/// dtype and device; `factor` is a wrapped number. The result is bit-identical
/// to that of `at::mul_out`, whose dispatch costs several times the
/// multiplication of a small gradient.
void scaled_copy(
    at::Tensor& target,
    const at::Tensor& source,
    const at::Tensor& factor);

} // namespace ddp::detail
