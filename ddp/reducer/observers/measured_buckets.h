#pragma once

#include <ddp/reducer/buckets/bucket_rebuild.h>
#include <ddp/reducer/observers/measured_layout.h>
#include <ddp/reducer/observers/recorder.h>

namespace ddp::detail {

/// Measurements of a Reducer's backward passes, first with the initial buckets
/// and then with buckets computed from these measurements.
class LayoutTrial {
 public:
  explicit LayoutTrial(size_t parameters);

  /// Records that a gradient is in its bucket, `time` after the first gradient
  /// of the backward pass.
  void ready(size_t parameter, BucketTimes::Duration time);
  /// Records that all buckets are reduced. Returns whether the measurements are
  /// sufficient.
  bool end(const Timeline& timeline);

  /// Measures again, with other buckets.
  void try_others();
  bool tries_others() const {
    return !before_.empty();
  }

  /// Times with the current buckets, in seconds: the mean time until each
  /// gradient is ready, the total time of all reductions, and the time of a
  /// backward pass.
  std::vector<double> ready_times() const;
  double reduction_time() const;
  double backward_time() const;
  /// The time of a backward pass with the previous buckets, in seconds.
  double backward_time_before() const;

 private:
  /// The number of backward passes with these buckets.
  size_t backwards_ = 0;
  std::vector<double> ready_;
  /// The shortest reduction time of each bucket.
  std::vector<double> reductions_;
  std::vector<double> times_;
  std::vector<double> before_;
};

/// Buckets that are computed from measured times: `BucketLayout::kMeasured`.
class MeasuredBuckets final : public ReductionObserver {
 public:
  /// All references must outlive this object.
  MeasuredBuckets(
      const ReducerOptions& options,
      BucketStorage& buckets,
      const BucketRebuild& rebuild,
      const ProcessGroup& group,
      Recorder& recorder);

  /// Whether the option is on and supported.
  bool is_wanted() const;
  /// Whether measurements are in progress.
  bool is_on() const {
    return trial_.has_value();
  }
  /// Starts to measure if `is_wanted`.
  void start();

  bool watches_parameters() const override {
    return is_on();
  }
  void on_parameter_ready(size_t index) override {
    if (trial_) {
      trial_->ready(index, recorder_.elapsed());
    }
  }
  void on_new_buckets() override {
    end();
  }
  /// Once enough backward passes have been measured after the rebuild, tries
  /// another layout; once that layout has been measured too, keeps the faster
  /// one. Collective whenever it tries a layout or decides.
  void on_end(const Reduction& reduction) override;

  /// The number of consecutive parameters of the first order in each bucket;
  /// empty if the buckets are not computed from measured times.
  const std::vector<size_t>& counts() const {
    return counts_;
  }
  /// Continues with the counts that another run measured.
  void resume(std::vector<size_t> counts);
  /// Divides `order` into the buckets of `counts()`.
  std::vector<BucketIndices> split(const BucketStorage::Order& order) const;

 private:
  void end(); // with the current buckets
  void try_others();
  void agree_on_cut(BucketStorage::Order& order);
  void judge();

  BucketStorage& buckets_;
  const BucketRebuild& rebuild_;
  ProcessGroup group_;
  Recorder& recorder_;
  bool asked_for_;
  bool records_anyway_;
  std::optional<LayoutTrial> trial_;
  std::vector<size_t> counts_;
  /// The layout that is restored if the new layout is not faster.
  BucketStorage::Order former_order_;
  std::vector<BucketIndices> former_buckets_;
};

} // namespace ddp::detail
