#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::detail {

/// The time of a reduction, in seconds: `latency + bytes * per_byte`.
struct ReductionCost {
  double latency = 0;
  double per_byte = 0;
};

/// A gradient of a backward pass.
struct TimedGradient {
  /// The time at which the gradient was ready, in seconds.
  double ready = 0;
  int64_t bytes = 0;
  /// The kind (dtype, device); gradients of different kinds do not share a
  /// bucket.
  size_t kind = 0;
};

/// Divides `gradients`, in the order in which they were ready, into buckets
/// that are reduced one after another, each when its last gradient is ready.
/// Finds, by dynamic programming, the fewest buckets whose last reduction ends
/// within one percent of the earliest possible time. Returns the number of
/// gradients in each group of consecutive gradients; a group with several kinds
/// forms one bucket per kind. Source: the model of Shi, Chu and Li, MG-WFBP,
/// https://arxiv.org/abs/1811.11141.
constexpr double kSlack = 0.01;
std::vector<size_t> cut_by_time(
    const std::vector<TimedGradient>& gradients,
    const ReductionCost& cost);

} // namespace ddp::detail
