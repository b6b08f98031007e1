#pragma once

#include <tests/support/catch.h>

#include <ATen/core/ivalue.h>

namespace ddp::test {

/// The bytes of a number.
template <typename T>
std::string number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// A safetensors file like those that other programs write.
inline std::string foreign_safetensors(
    const std::string& header,
    const std::string& data) {
  return number(uint64_t{header.size()}) + header + data;
}

/// The text that tests/parity/torch_file_check.py prints for the same value: a
/// line for each value inside, with the bits of this value.
std::string text_of(const c10::IValue& value, const std::string& where = "");

inline c10::impl::GenericDict dict(
    const std::vector<std::pair<c10::IValue, c10::IValue>>& entries) {
  c10::impl::GenericDict result(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : entries) {
    result.insert(key, value);
  }
  return result;
}

inline c10::impl::GenericList list(const std::vector<c10::IValue>& items) {
  c10::impl::GenericList result(c10::AnyType::get());
  for (const auto& item : items) {
    result.push_back(item);
  }
  return result;
}

/// The value at a path of keys in nested dicts.
template <typename... Keys>
c10::IValue entry(c10::IValue value, const Keys&... keys) {
  ((value = value.toGenericDict().at(keys)), ...);
  return value;
}

} // namespace ddp::test
