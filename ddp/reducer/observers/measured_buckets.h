#pragma once

#include <ddp/reducer/buckets/bucket_rebuild.h>
#include <ddp/reducer/observers/measured_layout.h>
#include <ddp/reducer/observers/recorder.h>

namespace ddp::detail {

/// What a Reducer measures of its backwards, first with the buckets that it
/// started from and then with those that follow from it.
class LayoutTrial {
 public:
  explicit LayoutTrial(size_t parameters);

  /// A gradient is in its bucket, so long after the backward's first one.
  void ready(size_t parameter, BucketTimes::Duration time);
  /// All buckets are reduced. Returns whether enough has been measured.
  bool end(const Timeline& timeline);

  /// Measures anew, with other buckets.
  void try_others();
  bool tries_others() const {
    return !before_.empty();
  }

  /// Seconds, of the present buckets: when each parameter's gradient was ready,
  /// the mean; what all reductions take together; what a backward takes.
  std::vector<double> ready_times() const;
  double reduction_time() const;
  double backward_time() const;
  /// The same of the buckets before.
  double backward_time_before() const;

 private:
  /// Backwards with these buckets.
  size_t backwards_ = 0;
  std::vector<double> ready_;
  /// The shortest reduction of each bucket.
  std::vector<double> reductions_;
  std::vector<double> times_;
  std::vector<double> before_;
};

/// Buckets that are cut from measured times: `BucketLayout::kMeasured`.
class MeasuredBuckets final : public ReductionObserver {
 public:
  /// All that is referred to must live as long.
  MeasuredBuckets(
      const ReducerOptions& options,
      BucketStorage& buckets,
      const BucketRebuild& rebuild,
      const ProcessGroup& group,
      Recorder& recorder);

  /// Whether the option is on, and can be.
  bool is_wanted() const;
  /// While they are measured.
  bool is_on() const {
    return trial_.has_value();
  }
  /// Starts to measure, if wanted.
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
  bool ends_with_collectives() const override {
    return is_on();
  }
  /// Once the buckets are rebuilt: tries others once enough has been measured,
  /// and keeps what is better. Collective then.
  void on_end(const Reduction& reduction) override;

  /// How many neighbours in the first order share a bucket; empty if the
  /// buckets are not cut from measured times.
  const std::vector<size_t>& counts() const {
    return counts_;
  }
  /// As another run measured them.
  void resume(std::vector<size_t> counts);
  /// The buckets of `counts()` in `order`.
  std::vector<BucketIndices> split(const BucketStorage::Order& order) const;

 private:
  void end(); // with the buckets of the moment
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
  /// What the trial goes back to where it does not pay.
  BucketStorage::Order former_order_;
  std::vector<BucketIndices> former_buckets_;
};

} // namespace ddp::detail
