#pragma once

#include <ddp/process_group.h>

#include <functional>

namespace ddp::detail {

/// Runs `work` on rank 0, and throws its exception on every rank as
/// `c10::Error`. Collective.
void on_rank_0(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work);

/// Runs `work` on every rank. If ranks throw, throws the exception of the first
/// of these ranks on every rank, as `c10::Error`. Collective.
void on_each_rank(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work);

/// Same as above, for `work` that may be collective. If `work` throws on one
/// rank while others wait in its collectives, these collectives fail with the
/// reason after a few seconds, and the group cannot be used again.
void on_each_rank_together(
    const char* operation,
    const ProcessGroup& group,
    const std::function<void()>& work);

} // namespace ddp::detail
