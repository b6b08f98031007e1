#pragma once

#include <ATen/core/ivalue.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {

/// Makes LibTorch's values of what an unpickler left. Tensors that are shared
/// stay shared; other values are made anew at each of their places, within the
/// arena's budget. Throws `c10::Error` if a value contains itself, is nested
/// too deep (`check_depth`), is none of those that a file may have, or where
/// all together take too much memory. Unless `strict`, a dict's items that are
/// or contain none of those values are left out.
c10::IValue make_tree(
    const PickleValue& value,
    PickleArena& arena,
    bool strict);

} // namespace ddp::detail
