#pragma once

#include <c10/core/thread_pool.h>
#include <ddp/process_group.h>
#include <ddp/reducer/buckets/futures.h>

#include <functional>
#include <optional>

namespace ddp::detail {

/// Runs reductions that consist of several collectives, each of which needs the
/// result of the previous collective.
///
/// Ranks must start a group's collectives in the same order. On the CPU,
/// callbacks of futures cannot guarantee this order: they run in any order, on
/// threads that other collectives may need. Reductions therefore run on a
/// separate thread, one after another, over separate connections, while
/// backward continues. On a GPU, a reduction is only queued, on a stream from
/// the pool. Backward waits if neither is possible: over MPI, which may not
/// allow another thread, and over a group from `from_c10d`, which cannot be
/// reconnected.
class Rounds {
 public:
  using Reduction = std::function<at::Tensor(const ProcessGroup&)>;

  /// `reduction` gets the group to use, may wait for its collectives, and
  /// returns a tensor like `buffer`, which becomes the future's value. The
  /// first call is collective.
  Future run(
      const at::Tensor& buffer,
      const ProcessGroup& group,
      Reduction reduction);

 private:
  void connect(const ProcessGroup& group);

  ProcessGroup origin_;
  ProcessGroup own_;
  bool connected_ = false;
  /// The destructor waits for the reduction in progress, and drops the other
  /// reductions.
  std::optional<c10::ThreadPool> thread_;
};

} // namespace ddp::detail
