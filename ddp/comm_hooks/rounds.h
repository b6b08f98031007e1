#pragma once

#include <c10/core/thread_pool.h>
#include <ddp/process_group.h>
#include <ddp/reducer/buckets/futures.h>

#include <functional>
#include <optional>

namespace ddp::detail {

/// Runs reductions of several collectives each, where one needs the result of
/// the one before.
///
/// Ranks must start a group's collectives in the same order. On the CPU they
/// cannot from the callbacks of futures, which come in any order and on threads
/// that other collectives may need. So reductions run on a thread of their own,
/// one after another, over connections of their own, while backward continues.
/// On a GPU collectives are only queued, and a reduction is queued at once, on
/// a stream from the pool. Backward waits where there is neither: over MPI,
/// which may not allow another thread, and over a group that was handed to us
/// and cannot be reconnected.
class Rounds {
 public:
  using Reduction = std::function<at::Tensor(const ProcessGroup&)>;

  /// `reduction` gets the group to use, may wait for its collectives, and
  /// returns a tensor like `buffer`, which the future holds then. The first
  /// call is collective.
  Future run(
      const at::Tensor& buffer,
      const ProcessGroup& group,
      Reduction reduction);

 private:
  void connect(const ProcessGroup& group);

  ProcessGroup origin_;
  ProcessGroup own_;
  bool connected_ = false;
  /// Its end waits for the reduction under way, and leaves out the rest.
  std::optional<c10::ThreadPool> thread_;
};

} // namespace ddp::detail
