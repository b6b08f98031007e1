#pragma once

#include <ddp/process_group/process_group_impl.h>

namespace ddp::detail {

// Texts about a wait, while it lasts and when it has failed.

/// "rank 1 of 3 on host a".
std::string this_rank(const ProcessGroupImpl& group);

/// The reasons; those that only repeat others' reasons if there is no other.
std::string describe(const std::vector<Failure>& failures);

/// This process's current call, in the program's terms.
std::string own_call();

/// The operation that failed: after the program's call, or its place in a
/// backward.
std::string failed_operation(
    const ProcessGroupImpl& group,
    const char* operation);

/// How a backend's collective ended, from the text of its error: without places
/// in its sources and the reasons' way through other ranks.
std::string reason_of_end(
    const ProcessGroupImpl& group,
    const std::string& error);

/// The remedy if other ranks are not in a call of ddp's.
std::string own_remedy();

/// Which ranks wait in which call while this one waits for collective `number`,
/// and the remedy; the group has a failure store.
std::string all_ranks(const ProcessGroupImpl& group, int64_t number);

/// Reports what this rank waits for, unless another rank has reported its own
/// wait, which continues. `state` is the store's content when it recorded its
/// wait. Returns whether it has reported.
bool tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::optional<WaitState>& state);

} // namespace ddp::detail
