#pragma once

#include <ATen/core/ivalue.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {

/// Converts the result of an unpickler to LibTorch's values. Shared tensors
/// stay shared; other values are copied to each of their places, within the
/// arena's budget. Throws `c10::Error` if a value contains itself, is nested
/// too deeply (`check_depth`), has a type that files cannot contain, or if all
/// values take too much memory. Unless `strict`, items of a dict that are or
/// contain other types are dropped; `omitted`, unless null, gets their places,
/// such as "args" or "model.config".
c10::IValue make_tree(
    const PickleValue& value,
    PickleArena& arena,
    bool strict,
    std::vector<std::string>* omitted = nullptr);

} // namespace ddp::detail
