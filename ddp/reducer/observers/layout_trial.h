#pragma once

#include <ddp/reducer/observers/measured_layout.h>
#include <ddp/statistics.h>

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

} // namespace ddp::detail
