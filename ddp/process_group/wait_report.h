#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

// Messages about a wait, while it lasts and when it has failed.

/// "rank 1 of 3 on host a".
std::string this_rank(const ProcessGroupImpl& group);

/// The reasons of the failures. Consequences are included only if there is no
/// other failure.
std::string describe(const std::vector<Failure>& failures);

/// The activity of this process, named by the program's call.
std::string own_call();

/// The name of the failed operation, after the program's call, or with its
/// place in a backward.
std::string failed_operation(
    const ProcessGroupImpl& group,
    const char* operation);

/// How a backend's collective ended, from the text of its error, without places
/// in its sources and without the path of the reason through other ranks.
std::string reason_of_end(
    const ProcessGroupImpl& group,
    const std::string& error);

/// The remedy if other ranks are not in a call of ddp.
std::string own_remedy();

/// Text: which ranks wait in which call while this one waits for collective
/// `number`, and the remedy, which depends on these calls or on `reason`. The
/// group must have a failure store.
std::string all_ranks(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::string& reason);

/// Reports what this rank waits for, unless another rank has reported a wait
/// that continues. `state` is the result of `mark_waiting`. Returns whether it
/// has reported.
bool tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::optional<WaitState>& state);

} // namespace ddp::detail
