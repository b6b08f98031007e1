#pragma once

#include <ddp/process_group.h>

#include <functional>

namespace ddp::detail {

/// Runs `work` on rank 0, and throws `c10::Error` on every rank with what it
/// threw there. Collective.
void on_rank_0(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work);

/// Runs `work` on every rank, and throws `c10::Error` on every rank with what
/// it threw on the first where it did. Collective.
void on_each_rank(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work);

/// The same for a work that may be collective itself. If it throws on one rank
/// while others wait in its collectives, these fail with the reason after some
/// seconds, and the group is of no more use.
void on_each_rank_together(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work);

} // namespace ddp::detail
