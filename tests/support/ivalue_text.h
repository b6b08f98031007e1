#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <string>

namespace ddp::test {

/// The bytes in hexadecimal digits.
inline std::string hex(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

/// What tests/parity/torch_file_check.py prints for the same value: a line for
/// each value in it, with its bits.
std::string text_of(const c10::IValue& value, const std::string& where = "");

/// What stands in a dict under the first key, in that one under the second ...
template <typename... Keys>
c10::IValue entry(c10::IValue value, const Keys&... keys) {
  ((value = value.toGenericDict().at(keys)), ...);
  return value;
}

} // namespace ddp::test
