#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>

#include <string>

namespace ddp::detail {

/// Converts text to a uint8 tensor of shape [bytes] on the CPU.
DDP_API at::Tensor to_bytes(const std::string& text);

/// Converts a result of `to_bytes` back to text.
DDP_API std::string to_string(const at::Tensor& bytes);

} // namespace ddp::detail
