#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

/// When a bucket did what, in time since the first gradient of its backward.
struct BucketTimes {
  using Duration = std::chrono::nanoseconds;

  int64_t bytes = 0;
  /// All gradients were in it.
  std::optional<Duration> ready;
  /// Its reduction was started: not before those of earlier buckets.
  std::optional<Duration> launched;
  /// Its reduction was complete. On a GPU: was queued completely.
  std::optional<Duration> done;
  /// The end of backward began to wait for it, and had waited.
  std::optional<Duration> waiting;
  std::optional<Duration> waited;
};

/// The buckets of one backward. Times that are not set have not come.
struct Timeline {
  /// Counts reductions, from 1.
  int64_t step = 0;
  /// In the order of reduction.
  std::vector<BucketTimes> buckets;
  /// The collective that was started last, such as "bucket 3 of 5, step 12".
  std::string last_collective;
  /// The wrapper's last forward before it, which is less than 0.
  std::optional<BucketTimes::Duration> forward_began;
  std::optional<BucketTimes::Duration> forward_ended;
  /// This rank had all its gradients. On a GPU: they were queued.
  std::optional<BucketTimes::Duration> computed;
  /// All buckets had been waited for.
  std::optional<BucketTimes::Duration> finished;
};

} // namespace ddp
