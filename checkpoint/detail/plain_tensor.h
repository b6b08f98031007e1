#pragma once

#include <ATen/core/Tensor.h>

namespace ddp::detail {

/// The values as a file has them: contiguous, on the CPU, and nothing left to
/// compute. They share the tensor's memory where it is so already.
at::Tensor plain_tensor(const at::Tensor& tensor);

} // namespace ddp::detail
