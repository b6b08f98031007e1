#pragma once

#include <ddp/process_group.h>

#include <string>

namespace ddp::detail {

/// Throws `c10::ValueError` where the first rank that came to this call has
/// another `text`; `what` names both in the message. Waits for nobody: calls
/// are matched by their number, so that ranks have to make them in one order.
/// Does nothing where the group has no store, or this has ended with its rank.
void check_same_as_first(
    const ProcessGroup& group,
    const std::string& what,
    const std::string& text);

} // namespace ddp::detail
