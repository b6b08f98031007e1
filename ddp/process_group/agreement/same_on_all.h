#pragma once

#include <ddp/process_group.h>

namespace ddp::detail {

/// Throws `c10::ValueError` if ranks come to this call with different `text`s:
/// the same one on all ranks, with the text of each, `what` it is about and
/// `remedy`. Waits for no one but where they differ: ranks that have gone on
/// throw it in their next wait on the group, which is of no use afterwards.
/// Calls about one thing are matched by their number, so that ranks have to
/// make them in one order. If the group's store cannot append, each is compared
/// with the first that came. Does nothing if there is no store, or it has ended
/// with its rank.
void check_same_on_all(
    const ProcessGroup& group,
    const std::string& what,
    const std::string& text,
    const std::string& remedy = "All ranks give the same, in the same order");

} // namespace ddp::detail
