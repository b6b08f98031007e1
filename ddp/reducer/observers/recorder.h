#pragma once

#include <ddp/reducer/buckets/bucket_rebuild.h>
#include <ddp/reducer/core/reduction_observer.h>
#include <ddp/statistics.h>

#include <mutex>

namespace ddp::detail {

/// A range of steps, from the first to the last.
struct StepRange {
  bool contains(int64_t step) const {
    return first <= step && step <= last;
  }
  int64_t first = 0;
  int64_t last = -1;
};

/// Records the times of some backward passes: selected passes, the first few,
/// every `sample_rate`th, and all while `record_all` is on. In other passes,
/// the recorder does not read the clock.
class Recorder final : public ReductionObserver {
 public:
  using Clock = std::chrono::steady_clock;

  /// All references must outlive this object. Throws `c10::ValueError` if
  /// `sample_rate` is less than 1.
  Recorder(
      const std::vector<ParameterState>& parameters,
      const BucketStorage& buckets,
      BucketRebuild& rebuild,
      int64_t sample_rate);

  void choose(StepRange steps) {
    chosen_ = steps;
  }
  void record_all(bool all) {
    all_ = all;
  }

  /// Call these functions when the forward pass before the next backward pass
  /// begins and ends.
  void forward_began();
  void forward_ended();

  void on_begin(const Reduction& reduction) override;
  void on_bucket_ready(const Bucket& bucket) override {
    note(bucket, &BucketTimes::ready);
  }
  void on_launch(const Bucket& bucket) override;
  void on_launched(const Bucket& bucket) override;
  void on_computed(const Reduction& reduction) override;
  void on_new_buckets() override;
  void on_wait(const Bucket& bucket) override {
    note(bucket, &BucketTimes::waiting);
  }
  void on_waited(const Bucket& bucket) override {
    note(bucket, &BucketTimes::waited);
  }
  void on_end(const Reduction& reduction) override;

  /// The timeline of the last recorded backward pass.
  Timeline timeline() const;
  Clock::time_point began() const;
  /// The time since the recorded backward pass began.
  BucketTimes::Duration elapsed() const {
    return Clock::now() - began();
  }

  /// Sets the times and the other fields from the last recorded backward pass.
  void describe(Statistics& statistics) const;

 private:
  /// Shared with the callbacks of reductions, which may outlive a Reducer.
  struct State {
    mutable std::mutex mutex;
    Clock::time_point began;
    Timeline timeline;
  };

  bool records(int64_t step) const;
  void note(
      const Bucket& bucket,
      std::optional<BucketTimes::Duration> BucketTimes::*at);
  void note(std::optional<BucketTimes::Duration> Timeline::*at);
  void add_up();

  const std::vector<ParameterState>& parameters_;
  const BucketStorage& buckets_;
  BucketRebuild& rebuild_;
  std::shared_ptr<State> state_;
  bool on_ = false;
  int64_t step_ = 0;
  bool all_ = false;
  int64_t sample_rate_;
  StepRange chosen_;
  std::optional<Clock::time_point> forward_began_;
  std::optional<Clock::time_point> forward_ended_;
  /// Times of the last recorded backward pass, and sums in place of averages.
  Statistics sums_;
  int64_t forwards_ = 0;
};

} // namespace ddp::detail
