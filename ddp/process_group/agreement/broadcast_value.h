#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/process_group.h>

namespace ddp::detail {

/// `root`'s value, whose tensors are on the CPU, on all ranks; the others'
/// `value` is ignored. Tensors are sent one by one, so that no rank needs more
/// memory than for all of them and once more the largest. Collective.
c10::IValue broadcast_value(
    const c10::IValue& value,
    const ProcessGroup& group,
    int64_t root = 0);

} // namespace ddp::detail
