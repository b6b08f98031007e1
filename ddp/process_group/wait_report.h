#pragma once

#include <ddp/process_group/process_group_impl.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::detail {

// What is said of a wait, while it lasts and when it has failed.

/// "rank 1 of 3 on host a".
std::string this_rank(const ProcessGroupImpl& group);

/// The reasons; those that only pass on what they saw where nobody knows more.
std::string describe(const std::vector<Failure>& failures);

/// What this process does, in the words of what the program called.
std::string own_call();

/// The operation that failed: behind what the program called, or where in a
/// backward it is.
std::string failed_operation(
    const ProcessGroupImpl& group,
    const char* operation);

/// What helps where others are in no call.
std::string own_remedy();

/// Who has not come to a collective that others wait for, or is in another
/// call than they; the group has a board.
std::string absent_ranks(const ProcessGroupImpl& group, int64_t number);

/// Says once, on the rank that has waited longest, what it waits for.
void tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    std::chrono::milliseconds time);

} // namespace ddp::detail
