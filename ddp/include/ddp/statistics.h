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
/// Python's DDPLoggingData, except `num_timed`. Indices refer to
/// `Reducer::parameters()`. Parameters with sparse gradients are in no bucket.
///
/// Times are measured in the first 10 backward passes that reduce gradients,
/// and then every `ReducerOptions::sample_rate` passes; averages are over the
/// measured passes. Times are host times: on a GPU, a time ends when the work
/// is queued.
struct Statistics {
  using Duration = std::chrono::nanoseconds; ///< The type of times.

  /// The number of backward passes that reduced gradients.
  int64_t iteration = 0;
  int64_t num_parameter_tensors = 0; ///< The number of reduced parameters.
  int64_t total_parameter_size_bytes = 0; ///< The size of these parameters.
  /// The communication hook's type, such as "ddp::AllReduceHook".
  std::string comm_hook;

  /// Bucket sizes of the first layout, in bytes, in the order of reduction.
  std::vector<int64_t> bucket_sizes;
  /// As above, after buckets were rebuilt.
  std::vector<int64_t> rebuilt_bucket_sizes;
  /// The indices of the parameters in each rebuilt bucket.
  std::vector<BucketIndices> rebuilt_per_bucket_param_indices;
  bool has_rebuilt_buckets = false; ///< Whether the layout has changed.

  /// The number of timed backward passes. The fields below describe the last
  /// timed pass.
  int64_t num_timed = 0;
  /// Parameter indices in the order in which gradients were ready.
  std::vector<size_t> prev_iteration_grad_ready_order_indices;
  int64_t num_buckets_reduced = 0; ///< The number of reduced buckets.
  /// The size of parameters without a new gradient on this rank, in bytes.
  int64_t unused_parameter_size = 0;

  /// The time of the last forward pass before this backward pass. Only
  /// `DistributedDataParallel` sets this field.
  std::optional<Duration> forward_compute_time;
  /// The time from the first gradient (with the wrapper, from the first output
  /// that backward reaches) until this rank has all its gradients.
  Duration backward_compute_time{};
  /// The time from the start of the first bucket's reduction until all waits
  /// have ended.
  Duration backward_comm_time{};
  /// The overlap of `backward_compute_time` and `backward_comm_time`.
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

/// The times of a bucket, measured from the first gradient of the backward
/// pass.
struct BucketTimes {
  using Duration = std::chrono::nanoseconds; ///< The type of times.

  int64_t bytes = 0; ///< The size of the bucket's gradients.
  /// The time when all gradients of the bucket were ready.
  std::optional<Duration> ready;
  /// The time when the bucket was launched; buckets are launched in order.
  std::optional<Duration> launched;
  /// The time when the reduction was complete; on a GPU, when it was queued.
  std::optional<Duration> done;
  /// The time when finalize backward began to wait for the bucket.
  std::optional<Duration> waiting;
  std::optional<Duration> waited; ///< The time when that wait ended.
};

/// The times of one backward pass, measured from the first gradient. A time is
/// unset if its event did not occur.
struct Timeline {
  /// The number of the reduction, counted from 1.
  int64_t step = 0;
  /// The times of each bucket, in the order of reduction.
  std::vector<BucketTimes> buckets;
  /// The collective that was started last, such as "bucket 3 of 5, step 12".
  std::string last_collective;
  /// The time when the wrapper's last forward pass began: negative, since the
  /// pass precedes the first gradient.
  std::optional<BucketTimes::Duration> forward_began;
  /// The time when that forward pass ended; also negative.
  std::optional<BucketTimes::Duration> forward_ended;
  /// The time when this rank had all its gradients; on a GPU, when they were
  /// queued.
  std::optional<BucketTimes::Duration> computed;
  /// The time when the waits for all buckets had ended.
  std::optional<BucketTimes::Duration> finished;
};

namespace detail {
DDP_API std::string summary(
    const torch::nn::Module& net,
    const Reducer& reducer);
}

/// Returns an ASCII table with a row for each module that has direct
/// parameters. A row contains the module's type, its numbers of elements and
/// bytes, the bytes of reduced gradients, and these gradients' buckets, counted
/// from 1. Totals and `reducer.statistics()` follow. A parameter of several
/// modules counts for the first module. `net` is a module, a pointer to one or
/// a module holder; for a `DistributedDataParallel`, the wrapped module is
/// shown. Call this function between backward passes. Not collective.
template <typename Net>
std::string summary(const Net& net, const Reducer& reducer) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
    return detail::summary(net, reducer);
  } else {
    return detail::summary(*net, reducer);
  }
}

} // namespace ddp
