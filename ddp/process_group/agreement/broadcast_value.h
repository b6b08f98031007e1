#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/process_group.h>

namespace ddp::detail {

/// Returns the value of rank `root` on all ranks. All tensors in the value must
/// be on the CPU. The other ranks' `value` is ignored. Tensors are sent one at
/// a time: a rank needs memory for all tensors, plus memory for the largest
/// tensor. Collective.
c10::IValue broadcast_value(
    const c10::IValue& value,
    const ProcessGroup& group,
    int64_t root = 0);

} // namespace ddp::detail
