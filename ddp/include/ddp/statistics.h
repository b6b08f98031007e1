#pragma once

#include <ddp/comm_hook.h>
#include <ddp/internal/export.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace torch::nn {
class Module;
} // namespace torch::nn

namespace ddp {

class Reducer;

/// A Reducer's counts and times on this rank. Names and meanings are those of
/// Python's DDPLoggingData, except `num_timed`. Indices are those of
/// `Reducer::parameters()`. Parameters with sparse gradients are in no bucket.
///
/// Times are measured in the first 10 backward passes that reduce, then every
/// `ReducerOptions::sample_rate` passes; averages are over these. Times are
/// host times: on a GPU, until the work was queued.
struct Statistics {
  using Duration = std::chrono::nanoseconds; ///< The type of times.

  /// The number of backward passes that were reduced.
  int64_t iteration = 0;
  int64_t num_parameter_tensors = 0; ///< The number of reduced parameters.
  int64_t total_parameter_size_bytes = 0; ///< The size of these parameters.
  /// The communication hook's type, such as "ddp::AllReduceHook".
  std::string comm_hook;

  /// Bucket sizes of the first layout, in bytes, in the order of reduction.
  std::vector<int64_t> bucket_sizes;
  /// As above, after buckets were rebuilt.
  std::vector<int64_t> rebuilt_bucket_sizes;
  /// The indices of the parameters in each of these buckets.
  std::vector<BucketIndices> rebuilt_per_bucket_param_indices;
  bool has_rebuilt_buckets = false; ///< Whether the layout has changed.

  /// The number of timed backward passes. The fields below describe the last.
  int64_t num_timed = 0;
  /// The order in which gradients were ready.
  std::vector<size_t> prev_iteration_grad_ready_order_indices;
  int64_t num_buckets_reduced = 0; ///< In this backward.
  /// The size of parameters without a new gradient on this rank, in bytes.
  int64_t unused_parameter_size = 0;

  /// The last forward before this backward. Only `DistributedDataParallel` sets
  /// it.
  std::optional<Duration> forward_compute_time;
  /// From the first gradient (with the wrapper, from the first output that
  /// backward reaches) until this rank had all its gradients.
  Duration backward_compute_time{};
  /// From the start of the first bucket's reduction until all waits have ended.
  Duration backward_comm_time{};
  /// The overlap of the two times above.
  Duration backward_compute_comm_overlap_time{};

  /// The average of `forward_compute_time`.
  std::optional<Duration> avg_forward_compute_time;
  /// The average of `backward_compute_time`.
  Duration avg_backward_compute_time{};
  /// The average of `backward_comm_time`.
  Duration avg_backward_comm_time{};
  /// The average of `backward_compute_comm_overlap_time`.
  Duration avg_backward_compute_comm_overlap_time{};
};

/// The times of a bucket, from the first gradient of its backward.
struct BucketTimes {
  using Duration = std::chrono::nanoseconds; ///< The type of times.

  int64_t bytes = 0; ///< The size of its gradients.
  /// When all its gradients were ready.
  std::optional<Duration> ready;
  /// When its reduction was launched, in the order of the buckets.
  std::optional<Duration> launched;
  /// When its reduction was complete. On a GPU: when it was queued.
  std::optional<Duration> done;
  /// When finalize backward began to wait for it.
  std::optional<Duration> waiting;
  std::optional<Duration> waited; ///< When that wait ended.
};

/// The times of one backward; a time is unset if its event did not occur.
struct Timeline {
  /// The number of the reduction, from 1.
  int64_t step = 0;
  /// The times of each bucket, in the order of reduction.
  std::vector<BucketTimes> buckets;
  /// The collective that was started last, such as "bucket 3 of 5, step 12".
  std::string last_collective;
  /// When the wrapper's last forward began; less than 0.
  std::optional<BucketTimes::Duration> forward_began;
  /// When the wrapper's last forward ended; less than 0.
  std::optional<BucketTimes::Duration> forward_ended;
  /// When this rank had all its gradients. On a GPU: when they were queued.
  std::optional<BucketTimes::Duration> computed;
  /// When the waits for all buckets had ended.
  std::optional<BucketTimes::Duration> finished;
};

namespace detail {
DDP_API std::string summary(
    const torch::nn::Module& net,
    const Reducer& reducer);
}

/// An ASCII table. A row for each module with direct parameters has its type,
/// numbers of elements and bytes, the bytes of reduced gradients, and their
/// buckets, counted from 1. Totals and `reducer.statistics()` follow. A
/// parameter of several modules counts for the first. `net` is a module, a
/// pointer to one or a module holder; for a `DistributedDataParallel`, the
/// wrapped module is shown. Call it between backward passes. Not collective.
template <typename Net>
std::string summary(const Net& net, const Reducer& reducer) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
    return detail::summary(net, reducer);
  } else {
    return detail::summary(*net, reducer);
  }
}

} // namespace ddp
