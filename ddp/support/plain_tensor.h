#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ddp::detail {

/// Why the tensor's values cannot be read from memory, as a predicate, or "":
/// it is defined, strided, not quantized, not on 'meta', and does not wrap
/// another tensor (in vmap, functionalization or Python).
std::string why_unreadable(const at::Tensor& tensor);

/// Throws `c10::Error`, which begins with `where`, with that reason, if any.
void check_readable(const at::Tensor& tensor, const std::string& where);

/// The values as a file has them: contiguous, on the CPU, and nothing left to
/// compute. They share the tensor's memory if it is so already. Throws as
/// `check_readable`.
at::Tensor plain_tensor(const at::Tensor& tensor);

} // namespace ddp::detail
