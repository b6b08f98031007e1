#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// Throws `c10::ValueError` if ranks pass different `text`s. The error is the
/// same on all ranks, and contains the text of each rank, the subject `what`
/// and `remedy`. Waits only if texts differ: ranks that have continued throw in
/// their next wait on the group, which cannot be used afterwards. Calls with
/// the same `what` are matched by number, so all ranks must make these calls in
/// the same order. If the group's store cannot append, each rank is compared
/// with the first rank to arrive. Does nothing without a store, or if the store
/// has ended.
void check_same_on_all(
    const ProcessGroup& group,
    const std::string& what,
    const std::string& text,
    const std::string& remedy =
        "Pass the same values on all ranks, in the same order");

} // namespace ddp::detail
