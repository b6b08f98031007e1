#pragma once

#include <ddp/reducer/core/backward_comparison.h>

namespace ddp::detail {

/// Leaves out buckets without a used parameter:
/// `skip_all_reduce_unused_params`.
class SkippedBuckets {
 public:
  /// All references must outlive this object.
  SkippedBuckets(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      BackwardComparison& comparison);

  /// Treats the parameters of buckets that this rank did not use as done, not
  /// as unused. If the skipped buckets have changed, compares them across
  /// ranks, which is collective. Throws `c10::Error` if the skipped buckets
  /// differ, since unrelated gradients would be averaged.
  void leave_out(Reduction& reduction);

 private:
  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  BackwardComparison& comparison_;
  /// The parameters in the buckets that were left out last; equal on all ranks.
  std::vector<size_t> left_out_;
};

} // namespace ddp::detail
