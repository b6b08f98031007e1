#pragma once

#include <ddp/bucket.h>
#include <ddp/timeline.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace ddp::detail {

/// Keeps the times of the last backward's buckets. Does nothing unless enabled.
class Recorder {
 public:
  explicit Recorder(bool enabled);

  void begin(int64_t step, const std::vector<Bucket>& buckets);
  /// Takes in buckets that were added since.
  void extend(const std::vector<Bucket>& buckets);
  void ready(size_t bucket);
  void launched(const Bucket& bucket);

  Timeline timeline() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// Shared with the callbacks of reductions, which may outlive a Reducer.
  struct State {
    mutable std::mutex mutex;
    Clock::time_point began;
    Timeline timeline;
  };
  std::shared_ptr<State> state_; // null where not enabled
};

} // namespace ddp::detail
