#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>

namespace ddp::detail {

/// A dict's key, a string or an integer, as text.
std::string key_text(const c10::IValue& key);

/// The place of an item of the container at `place`:
/// "optimizer.state.0.exp_avg".
std::string place_in(const std::string& place, const c10::IValue& key);

/// Calls `function` with the key and the value of each item of a list, a tuple
/// (whose keys are the positions) or a dict; other values have no items.
void for_each_item(
    const c10::IValue& value,
    const std::function<void(const c10::IValue&, const c10::IValue&)>&
        function);

/// Throws `c10::ValueError` if `depth` exceeds the limit for nested values.
void check_depth(int depth);

/// The most memory that values without tensors may take whose file, or part of
/// a file, has `size` bytes. The largest case is a dict of many short words,
/// which takes about 50 times its bytes.
uint64_t value_budget(uint64_t size);

/// Throws `c10::Error` if `bytes` exceed the budget.
void check_budget(uint64_t bytes, uint64_t budget);

/// Throws `c10::TypeError` or `c10::ValueError` with the place if the value
/// contains an item that files cannot store.
void check_writable(const c10::IValue& value);

} // namespace ddp::detail
