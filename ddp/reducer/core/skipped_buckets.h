#pragma once

#include <ddp/reducer/core/backward_comparison.h>

namespace ddp::detail {

/// Leaves out buckets that no parameter of was used:
/// `skip_all_reduce_unused_params`.
class SkippedBuckets {
 public:
  /// All that is referred to must live as long.
  SkippedBuckets(
      std::vector<ParameterState>& parameters,
      BucketStorage& buckets,
      BackwardComparison& comparison);

  /// The parameters of buckets that this rank used nothing of count as done,
  /// and no longer as unused. If others are left out than last time, throws
  /// `c10::Error` if that differs between ranks, which would average unrelated
  /// gradients. Collective then.
  void leave_out(Reduction& reduction);

 private:
  std::vector<ParameterState>& parameters_;
  BucketStorage& buckets_;
  BackwardComparison& comparison_;
  /// The parameters that were left out last, the same on all ranks.
  std::vector<size_t> left_out_;
};

} // namespace ddp::detail
