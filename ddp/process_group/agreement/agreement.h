#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// Checks over `store` that all ranks call this function with the same `text`;
/// also detects missing ranks. Throws a `c10::Error` that names the missing
/// ranks, or both texts, after at most the group's timeout. Collective.
void agree(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const std::string& key,
    const std::string& text,
    const std::string& what);

} // namespace ddp::detail
