#pragma once

#include <ddp/process_group/process_group_impl.h>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>

namespace ddp::detail {

/// Thrown if a collective failed because of another rank; the text describes
/// the failure of that rank.
class PeerError : public c10::DistBackendError {
 public:
  explicit PeerError(const std::string& text);
};

/// The reason for a failed wait, before `guarded` adds the operation and the
/// rank.
struct WaitFailure {
  std::string cause;
  enum class Kind {
    kNew, ///< not yet reported; the other ranks will throw the same text
    kKnown, ///< already reported to the other ranks
    kWhole, ///< already reported, and `cause` is the whole message
    kCommon, ///< `cause` is the whole message of a `c10::ValueError`
  } kind = Kind::kNew;
  /// The lines of the failure store that do not concern this wait.
  size_t earlier_lines = 0;
};

/// A collective that has started.
struct Collective {
  c10::intrusive_ptr<c10d::Work> work;
  /// The number among the group's collectives, from 1.
  int64_t number = 0;
  /// Whether this thread must wait, instead of a GPU's stream.
  bool on_host = true;
};

/// Whether the group's operations progress only in calls, as over MPI without
/// threads.
bool needs_calls(const ProcessGroupImpl& group);

/// Calls `launch`, whose collectives need not be complete when it returns. If
/// MPI makes progress only in calls, they complete in the waits below.
void defer(const ProcessGroupImpl& group, const std::function<void()>& launch);

/// Starts a collective on tensors like `tensor`.
template <typename Launch>
Collective start(
    ProcessGroupImpl& group,
    const at::Tensor& tensor,
    Launch&& launch) {
  const std::lock_guard<std::recursive_mutex> lock(group.launching);
  const auto number = ++group.launched;
  // A wrapped group may be named after its CPU backend.
  const bool on_host = tensor.is_cpu() ||
      group.group->getBackend(tensor.device().type())->getBackendName() !=
          "nccl";
  Collective collective{{}, number, on_host};
  defer(group, [&] { collective.work = launch(); });
  return collective;
}

/// Starts an all-reduce of a tensor whose memory a backend can use.
Collective start_all_reduce(
    ProcessGroupImpl& group,
    at::Tensor& tensor,
    ReduceOp op);

/// Waits until a collective ends or another rank fails. Call this within
/// `guarded`. Sends no request to the store for the first 0.2 s. After that,
/// `check` is called repeatedly, and can end the wait by throwing
/// `WaitFailure`.
void wait(
    ProcessGroupImpl& group,
    const Collective& collective,
    const std::function<void()>& check = nullptr);

/// Throws `PeerError` if the nodes of the job change, so that no rank of a
/// group of `size` ranks waits for a store whose host is lost.
void check_nodes(int64_t size);

/// Throws `WaitFailure` if another rank, or another thread of this rank, has
/// given up.
void look_for_failure(const ProcessGroupImpl& group);

/// Throws if collectives can no longer work.
void check_usable(const ProcessGroupImpl& group, const char* operation);

/// Breaks the group, reports to the other ranks and throws `PeerError`, or, if
/// the failure is common to all ranks, `c10::ValueError`.
[[noreturn]] void fail(
    ProcessGroupImpl& group,
    const char* operation,
    const WaitFailure& failure);

/// Throws for a collective that could not start: `c10::DistBackendError`, or,
/// if another rank is the reason, the exception of a failed wait.
[[noreturn]] void fail(
    ProcessGroupImpl& group,
    const char* operation,
    const std::exception& error);

/// Runs a collective; errors name the collective and the rank.
template <typename Function>
auto guarded(
    ProcessGroupImpl& group,
    const char* operation,
    Function&& function) {
  check_usable(group, operation);
  try {
    return function();
  } catch (const c10::ValueError&) { // the caller's error, already reported
    throw;
  } catch (const WaitFailure& failure) {
    fail(group, operation, failure);
  } catch (const std::exception& error) {
    fail(group, operation, error);
  }
}

/// Waits as for a collective, for at most the group's timeout, until
/// `finished_within` returns true. `finished_within` receives a slice of time;
/// its exceptions end the wait. `clue` adds to the message of a timeout. Call
/// this within `guarded`.
void wait_with_timeout(
    const ProcessGroupImpl& group,
    const std::function<bool(std::chrono::milliseconds slice)>& finished_within,
    const std::function<std::string()>& clue = nullptr);

/// Waits for the future of a communication hook as for a collective of the
/// group, for at most the group's timeout; `operation` is for the message.
/// Throws like a collective. The caller gets the value from the future. `check`
/// is called repeatedly in a wait of more than 0.2 s, and can end the wait by
/// throwing `WaitFailure`.
void wait_for(
    const ProcessGroup& group,
    c10::ivalue::Future& future,
    const char* operation,
    const std::function<void()>& check = nullptr);

/// Waits for a key of a store as for a collective of the group, for at most the
/// group's timeout. `operation` is for the message; `clue` adds to the message
/// of a timeout. Throws like a collective.
void wait_for(
    const ProcessGroup& group,
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::string& key,
    const char* operation,
    const std::function<std::string()>& clue = nullptr);

/// Makes the other ranks' waits on this group, and on its duplicates, throw
/// with `text`, this rank's reason for giving up; a consequence if another rank
/// has failed since this rank's newest group was formed. The group cannot be
/// used afterwards. Does nothing if the group has already failed. Does not
/// throw, and takes at most a few seconds.
void report_failure(
    const ProcessGroup& group,
    const std::string& text) noexcept;

/// For an error that is common to all ranks: throws `c10::ValueError` with
/// `text` on this rank, and, like `report_failure`, in the other ranks' waits.
[[noreturn]] void fail_on_all(
    const ProcessGroup& group,
    const std::string& text);

} // namespace ddp::detail
