#pragma once

#include <ddp/backends/capture.h>
#include <ddp/comm_hook.h>

namespace ddp::detail {

/// Counts the backward passes in which a hook is called, and rejects the
/// capture of a graph, whose replays would not be counted.
class StepCount {
 public:
  /// The number of backward passes before the backward pass of `bucket`.
  int64_t before(const GradBucket& bucket) {
    if (bucket.iteration != iteration_) {
      backends::check_not_capturing(
          bucket.buffer.device(),
          "PowerSGDHook and PostLocalSGDHook count steps on the host; use "
          "another comm_hook, or do not capture");
      iteration_ = bucket.iteration;
      ++begun_;
    }
    return begun_ - 1;
  }

  int64_t begun() const {
    return begun_;
  }

  /// Continues the count after `begun` backward passes.
  void set(int64_t begun) {
    begun_ = begun;
    iteration_ = -1;
  }

 private:
  int64_t begun_ = 0;
  /// The number of the last backward pass, as counted by the Reducer.
  int64_t iteration_ = -1;
};

} // namespace ddp::detail
