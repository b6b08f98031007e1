#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <common/text.h>

namespace ddp::command {

/// What is meant to fit on a line.
constexpr size_t kLineWidth = 80;

/// "1 tensor", "2 tensors".
std::string counted(uint64_t number, const std::string& noun);

/// "[64, 3, 7, 7]".
std::string shape_text(const at::Tensor& tensor);

/// As Python calls it: "float32".
std::string dtype_text(const at::Tensor& tensor);

/// A text from a file as it is, or, where it has characters that would control
/// a terminal, with these written as \u001b.
std::string printable(const std::string& text);

/// A leaf's name to be shown, also if the file is that leaf alone.
std::string name_text(const std::string& name);

/// A leaf that is no tensor, in at most `width` columns.
std::string value_text(const c10::IValue& value, size_t width);

} // namespace ddp::command
