#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// Throws `c10::ValueError` if ranks call it with different `text`s: the same
/// error on all ranks, with the text of each, its subject `what` and `remedy`.
/// Waits only if they differ: ranks that have continued throw it in their next
/// wait on the group, which cannot be used afterwards. Calls with one `what`
/// are matched by their number, so ranks must make them in one order. If the
/// group's store cannot append, each is compared with the first to arrive. Does
/// nothing if there is no store, or it has ended with its rank.
void check_same_on_all(
    const ProcessGroup& group,
    const std::string& what,
    const std::string& text,
    const std::string& remedy =
        "Pass the same values on all ranks, in the same order");

} // namespace ddp::detail
