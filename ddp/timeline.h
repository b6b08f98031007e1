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
};

/// The buckets of one backward. Times that are not set have not come.
struct Timeline {
  /// Counts reductions, from 1.
  int64_t step = 0;
  /// In the order of reduction.
  std::vector<BucketTimes> buckets;
  /// The collective that was started last, such as "bucket 3 of 5, step 12".
  std::string last_collective;
};

} // namespace ddp
