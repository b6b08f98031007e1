#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <vector>

namespace ddp::detail {

/// Containers of values of any type, as in Python.
inline c10::impl::GenericDict new_dict() {
  return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get());
}
inline c10::impl::GenericList new_list() {
  return c10::impl::GenericList(c10::AnyType::get());
}

/// The number of slots of a dict with these keys. With maliciously colliding
/// keys, the dict could exhaust the memory.
uint64_t dict_slots(const std::vector<c10::IValue>& keys);

} // namespace ddp::detail
