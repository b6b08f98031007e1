#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <string>

namespace ddp::detail {

/// A dict's key, a string or an integer, as text.
std::string key_text(const c10::IValue& key);

/// The place of an item in what is at `place`: "optimizer.state.0.exp_avg".
std::string place_in(const std::string& place, const c10::IValue& key);

/// Calls `function` with key and value of each item of a list, a tuple (whose
/// keys are the positions) or a dict; other values have none.
void for_each_item(
    const c10::IValue& value,
    const std::function<void(const c10::IValue&, const c10::IValue&)>&
        function);

/// Throws `c10::ValueError` unless values may be nested as deep.
void check_depth(int depth);

/// Throws `c10::TypeError` and `c10::ValueError` that say where in the value
/// something is that no file can have.
void check_writable(const c10::IValue& value);

} // namespace ddp::detail
