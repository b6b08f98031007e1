#pragma once

#include <ddp/reducer/buckets/bucket.h>
#include <ddp/statistics.h>

#include <mutex>

namespace ddp::detail {

/// The first and the last of some steps.
struct StepRange {
  bool contains(int64_t step) const {
    return first <= step && step <= last;
  }
  int64_t first = 0;
  int64_t last = -1;
};

/// Keeps the times of some backwards: those of `chosen`, the first few, each
/// `sample_rate`th, and all while `record_all` says so. Of the others it reads
/// no clock.
class Recorder {
 public:
  using Clock = std::chrono::steady_clock;

  /// Throws `c10::ValueError` where `sample_rate` is less than 1.
  Recorder(int64_t sample_rate, StepRange chosen);

  void record_all(bool all) {
    all_ = all;
  }

  /// Of the forward before backward `step`.
  void forward_began(int64_t step);
  void forward_ended();

  void begin(int64_t step, const std::vector<Bucket>& buckets);
  /// Whether the backward that began last is recorded.
  bool is_on() const {
    return on_;
  }
  /// Takes in buckets that were added since.
  void extend(const std::vector<Bucket>& buckets);
  /// What has just come of a bucket.
  void note(
      size_t bucket,
      std::optional<BucketTimes::Duration> BucketTimes::*at);
  /// Before its reduction is started: it may be complete right after.
  void launching(size_t bucket);
  void launched(const Bucket& bucket);
  /// This rank has all its gradients, which came in this order.
  void computed(const std::vector<size_t>& order, int64_t unused_bytes);
  void finished();

  /// Of the last backward that was recorded.
  Timeline timeline() const;
  Clock::time_point began() const;
  /// Since the one that is recorded began.
  BucketTimes::Duration elapsed() const {
    return Clock::now() - began();
  }

  /// Sets times, and what is told of the backward that was recorded last.
  void describe(Statistics& statistics) const;

 private:
  /// Shared with the callbacks of reductions, which may outlive a Reducer.
  struct State {
    mutable std::mutex mutex;
    Clock::time_point began;
    Timeline timeline;
  };

  bool records(int64_t step) const;
  void note(std::optional<BucketTimes::Duration> Timeline::*at);
  void add_up();

  std::shared_ptr<State> state_;
  bool on_ = false;
  bool all_ = false;
  int64_t sample_rate_;
  StepRange chosen_;
  std::optional<Clock::time_point> forward_began_;
  std::optional<Clock::time_point> forward_ended_;
  /// Times of the last one, and sums in place of averages.
  Statistics sums_;
  int64_t forwards_ = 0;
};

} // namespace ddp::detail
