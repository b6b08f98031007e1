#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// Checks that all ranks come here with the same `text`, over `store`, so that
/// ranks that do not come are noticed too. Throws `c10::Error` that names them,
/// or both texts, after at most the group's timeout. Collective.
void agree(
    const c10::intrusive_ptr<c10d::Store>& store,
    const ProcessGroup& group,
    const std::string& key,
    const std::string& text,
    const std::string& what);

} // namespace ddp::detail
