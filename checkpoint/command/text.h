#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <common/text.h>

namespace ddp::command {

/// The width of a line in columns.
constexpr size_t kLineWidth = 80;

/// "1 tensor", "2 tensors".
std::string counted(uint64_t number, const std::string& noun);

/// "[64, 3, 7, 7]".
std::string shape_text(const at::Tensor& tensor);

/// The name of the dtype in Python: "float32".
std::string dtype_text(const at::Tensor& tensor);

/// Text from a file, with terminal control characters escaped: ESC becomes
/// \u001b.
std::string printable(const std::string& text);

/// A leaf's name for output, or a placeholder if the file is a single leaf.
std::string name_text(const std::string& name);

/// A leaf that is not a tensor, in at most `width` columns.
std::string value_text(const c10::IValue& value, size_t width);

} // namespace ddp::command
