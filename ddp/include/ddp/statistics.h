#pragma once

#include <ddp/bucket_assignment.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// What a Reducer has done and how long it took, on this rank. Names and
/// meanings are those of Python's DDPLoggingData, but for `num_timed`. Indices
/// are those of `Reducer::parameters()`. Parameters with sparse gradients are
/// in no bucket.
///
/// Times are taken in the first 10 backwards that reduce, and then in each
/// `ReducerOptions::sample_rate`th; averages are over those. They are times of
/// the host: on a GPU, until the work was queued.
struct Statistics {
  using Duration = std::chrono::nanoseconds;

  /// How many backwards have been reduced.
  int64_t iteration = 0;
  int64_t num_parameter_tensors = 0;
  int64_t total_parameter_size_bytes = 0;
  /// The communication hook's type, such as "ddp::AllReduceHook".
  std::string comm_hook;

  /// In bytes, in the order of reduction: as they were first, and as they are
  /// since they were laid out anew.
  std::vector<int64_t> bucket_sizes;
  std::vector<int64_t> rebuilt_bucket_sizes;
  std::vector<BucketIndices> rebuilt_per_bucket_param_indices;
  bool has_rebuilt_buckets = false;

  /// How many backwards have been timed. What follows is of the last of them.
  int64_t num_timed = 0;
  /// The order in which gradients came.
  std::vector<size_t> prev_iteration_grad_ready_order_indices;
  int64_t num_buckets_reduced = 0;
  /// In bytes: what this rank had no new gradient for.
  int64_t unused_parameter_size = 0;

  /// The last forward before it. Of a `DistributedDataParallel` only.
  std::optional<Duration> forward_compute_time;
  /// From the first gradient (the wrapper: from the first output that backward
  /// reaches) until this rank had all its gradients.
  Duration backward_compute_time{};
  /// From the start of the first bucket's reduction until all were waited for.
  Duration backward_comm_time{};
  /// How much of the two is at the same time.
  Duration backward_compute_comm_overlap_time{};

  std::optional<Duration> avg_forward_compute_time;
  Duration avg_backward_compute_time{};
  Duration avg_backward_comm_time{};
  Duration avg_backward_compute_comm_overlap_time{};
};

} // namespace ddp
