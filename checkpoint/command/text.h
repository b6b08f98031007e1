#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

namespace ddp::command {

/// What is meant to fit on a line.
constexpr size_t kLineWidth = 80;

/// "512 B", "44.6 MiB".
std::string human_size(uint64_t bytes);

/// "11,181,642".
std::string grouped(uint64_t number);

/// "1 tensor", "2 tensors".
std::string counted(uint64_t number, const std::string& noun);

/// "[64, 3, 7, 7]".
std::string shape_text(const at::Tensor& tensor);

/// As Python calls it: "float32".
std::string dtype_text(const at::Tensor& tensor);

/// A text from a file as it is, or, where it has characters that would control
/// a terminal, with these written as \u001b.
std::string printable(const std::string& text);

/// A leaf's name to be shown, also where the file is that leaf alone.
std::string name_text(const std::string& name);

/// The columns that a text takes.
size_t width_of(const std::string& text);

/// A leaf that is no tensor, in at most `width` columns.
std::string value_text(const c10::IValue& value, size_t width);

} // namespace ddp::command
