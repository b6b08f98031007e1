#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ddp::detail {

/// The reason why the tensor's values cannot be read from memory, as a
/// predicate. Empty if the tensor is defined, strided, not quantized, not on
/// 'meta', and does not wrap another tensor (in vmap, functionalization or
/// Python).
std::string why_unreadable(const at::Tensor& tensor);

/// Throws a `c10::Error` whose text begins with `where` if the values cannot be
/// read.
void check_readable(const at::Tensor& tensor, const std::string& where);

/// Returns the values as stored in a file: contiguous, on the CPU, and without
/// lazy operations. The result shares the tensor's memory if the tensor already
/// has this form. Throws like `check_readable`.
at::Tensor plain_tensor(const at::Tensor& tensor);

} // namespace ddp::detail
