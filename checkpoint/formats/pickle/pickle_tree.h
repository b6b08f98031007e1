#pragma once

#include <ATen/core/ivalue.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {

/// How deep values may be nested in each other.
constexpr int kMaxDepth = 100;

/// Makes LibTorch's values of what an unpickler left. What is shared stays
/// shared. Throws `c10::Error` where a value contains itself, is nested deeper
/// than kMaxDepth, is none of those that a file may have, or where all together
/// would be more than `max_values` if nothing were shared. Unless `strict`, a
/// dict's items that are or contain none of those values are left out.
c10::IValue make_tree(
    const PickleValue& value,
    PickleHeap& heap,
    uint64_t max_values,
    bool strict);

} // namespace ddp::detail
