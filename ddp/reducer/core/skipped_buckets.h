#pragma once

#include <ddp/reducer/core/backward_comparison.h>

namespace ddp::detail {

/// Leaves out buckets without a used parameter:
/// `skip_all_reduce_unused_params`.
class SkippedBuckets {
 public:
  /// All references must outlive it.
  SkippedBuckets(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      BackwardComparison& comparison);

  /// The parameters of buckets that this rank did not use count as done, and
  /// not as unused. If other buckets are left out than last time, throws
  /// `c10::Error` if they differ between ranks, which would average unrelated
  /// gradients. That comparison is collective.
  void leave_out(Reduction& reduction);

 private:
  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  BackwardComparison& comparison_;
  /// The parameters in the buckets that were left out last; equal on all ranks.
  std::vector<size_t> left_out_;
};

} // namespace ddp::detail
