#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ddp::detail {

/// A text as a tensor of uint8 of shape [bytes] on the CPU.
at::Tensor to_bytes(const std::string& text);

/// The text of such a tensor.
std::string to_string(const at::Tensor& bytes);

} // namespace ddp::detail
