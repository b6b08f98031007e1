#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

// What is said of a wait, while it lasts and when it has failed.

/// "rank 1 of 3 on host a".
std::string this_rank(const ProcessGroupImpl& group);

/// The reasons; those that only pass on what they saw where no one knows more.
std::string describe(const std::vector<Failure>& failures);

/// What this process does, in the words of what the program called.
std::string own_call();

/// The operation that failed: behind what the program called, or where in a
/// backward it is.
std::string failed_operation(
    const ProcessGroupImpl& group,
    const char* operation);

/// How a backend's collective ended, from the text of its error: without places
/// in its sources and without the reasons' way through other ranks.
std::string reason_of_end(
    const ProcessGroupImpl& group,
    const std::string& error);

/// What to do if other ranks are in no call of ddp's.
std::string own_remedy();

/// Which ranks wait in which call while this one waits for collective `number`,
/// and what to do, by what they wait in or because of `reason`; the group has a
/// failure store.
std::string all_ranks(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::string& reason);

/// Says what this rank waits for, unless another has told of its own wait,
/// which continues. `state` is what it found when it said that it waits.
/// Returns whether it has told.
bool tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::optional<WaitState>& state);

} // namespace ddp::detail
