#pragma once

#include <c10/core/thread_pool.h>
#include <ddp/process_group.h>
#include <ddp/reducer/buckets/futures.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

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
/// the pool. Backward waits if neither is possible: over an MPI that allows no
/// other thread, and over a group from `from_c10d`, which cannot be
/// reconnected.
class Rounds {
 public:
  using Reduction = std::function<at::Tensor(const ProcessGroup&)>;

  /// `reduction` gets the group to use, may wait for its collectives, and
  /// returns a tensor like `buffer`, which becomes the future's value. Connects
  /// if `connect` was not called.
  Future run(
      const at::Tensor& buffer,
      const ProcessGroup& group,
      Reduction reduction);

  /// Makes the thread's connections, unless the last call was for this group.
  /// Returns the group of the reductions. Collective.
  ProcessGroup connect(const ProcessGroup& group);

 private:
  using Origin = c10::weak_intrusive_ptr<c10d::ProcessGroup>;

  /// Not owned: a failed Reducer's group ends with that Reducer, which the
  /// other ranks wait for.
  Origin origin_{c10::intrusive_ptr<c10d::ProcessGroup>()};
  std::optional<ProcessGroup> own_; ///< the thread's connections
  /// The destructor waits for the reduction in progress, and drops the other
  /// reductions.
  std::optional<c10::ThreadPool> thread_;
};

} // namespace ddp::detail
