#include <ddp/reducer/core/skipped_buckets.h>

#include <algorithm>

namespace ddp::detail {

SkippedBuckets::SkippedBuckets(
    std::vector<ParameterState>& parameters,
    BucketStorage& buckets,
    BackwardComparison& comparison)
    : parameters_(parameters), buckets_(buckets), comparison_(comparison) {}

void SkippedBuckets::leave_out(Reduction& reduction) {
  std::vector<size_t> left_out;
  for (auto& bucket : buckets_) {
    const auto& indices = bucket.indices;
    bucket.skipped =
        std::none_of(indices.begin(), indices.end(), [this](size_t index) {
          return parameters_[index].used;
        });
    if (bucket.skipped) {
      bucket.pending = 0;
      left_out.insert(left_out.end(), indices.begin(), indices.end());
    }
  }
  auto& unused = reduction.unused;
  const auto is_skipped = [this](size_t index) {
    const auto bucket = parameters_[index].bucket;
    return bucket != ParameterState::kNoBucket && buckets_[bucket].skipped;
  };
  unused.erase(
      std::remove_if(unused.begin(), unused.end(), is_skipped), unused.end());
  if (std::exchange(left_out_, left_out) != left_out) {
    comparison_.compare(
        reduction.step,
        "the unused parameters that skip_all_reduce_unused_params leaves out",
        parameters_,
        left_out);
  }
}

} // namespace ddp::detail
