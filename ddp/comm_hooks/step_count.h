#pragma once

#include <ddp/comm_hook.h>

namespace ddp::detail {

/// Counts the backward passes in which a hook is called.
class StepCount {
 public:
  /// The number of backward passes before the backward pass of `bucket`.
  int64_t before(const GradBucket& bucket) {
    if (bucket.iteration != iteration_) {
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
