#pragma once

#include <ddp/module_state.h>

#include <string>

namespace ddp::detail {

/// Returns the text of the error that `verify_same_values` throws, or "" if the
/// tensors are the same on all ranks. Collective.
std::string different_values(
    const NamedTensors& tensors,
    const ProcessGroup& group,
    const std::string& what);

} // namespace ddp::detail
