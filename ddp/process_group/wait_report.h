#pragma once

#include <ddp/process_group/collective_wait.h>

namespace ddp::detail {

// Messages about a wait, during the wait and after it has failed.

/// Returns text such as "rank 1 of 3 on host a".
std::string this_rank(int64_t rank, int64_t size);
std::string this_rank(const ProcessGroupImpl& group);

/// Returns why a wait fails after these failures of other ranks, which must not
/// be empty. Includes consequences only if all failures are consequences.
WaitFailure caused_by(const std::vector<Failure>& failures);

/// The activity of this thread, or else of this process, named by the program's
/// call.
std::string own_call();

/// The name of the failed operation, preceded by the program's call or, in a
/// backward pass, by this rank's activity.
std::string failed_operation(
    const ProcessGroupImpl& group,
    const char* operation);

/// Returns the reason why a backend's collective ended, from the text of its
/// error, without source locations and without the path of the reason through
/// other ranks. Over hierarchical, the text begins with the part that failed:
/// "within the host (shm): ".
std::string reason_of_end(
    const ProcessGroupImpl& group,
    const std::string& error);

/// The remedy if other ranks are not in a call to ddp.
std::string own_remedy();

/// Returns text that lists the other ranks and the calls in which they wait,
/// while this rank waits for collective `number`. The text ends with a remedy
/// that depends on these calls or on `error`, the text of the backend's error.
/// Ranks that have published no wait are listed only if `waited_long`:
/// otherwise, they may have begun to wait. The group must have a failure store.
std::string all_ranks(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::string& error,
    bool waited_long);

/// Reports this rank's wait, unless another rank has reported a wait that
/// continues. `state` is the result of `mark_waiting`. Returns whether this
/// call reported the wait.
bool tell_of_wait(
    const ProcessGroupImpl& group,
    int64_t number,
    const std::optional<WaitState>& state);

} // namespace ddp::detail
