#include <ddp/reducer/buckets/bucket_rebuild.h>

#include <ddp/reducer/buckets/bucket_layout.h>

#include <ATen/ATen.h>

#include <algorithm>

namespace ddp::detail {

BucketRebuild::BucketRebuild(
    const ReducerOptions& options,
    BucketStorage& buckets,
    const ProcessGroup& group)
    : options_(options),
      buckets_(buckets),
      group_(group),
      step_(rebuilds_after(options)) {}

void BucketRebuild::start(const std::vector<ParameterState>& parameters) {
  std::vector<bool> came(parameters.size());
  for (const size_t index : ready_order_) {
    came[index] = true;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].bucket != ParameterState::kNoBucket && !came[i]) {
      ready_order_.push_back(i);
    }
  }
  order_ = at::empty({static_cast<int64_t>(ready_order_.size())}, at::kLong);
  std::copy(
      ready_order_.begin(),
      ready_order_.end(),
      order_.mutable_data_ptr<int64_t>());
  work_ = group_.broadcast_async(order_);
}

void BucketRebuild::finish() {
  work_.wait();
  const auto* order = order_.const_data_ptr<int64_t>();
  const BucketStorage::Order rank_0s(order, order + order_.numel());
  buckets_.clear(/*rebuilt=*/true);
  buckets_.append(
      rank_0s, rebuilt_buckets(buckets_.tensors(), rank_0s, options_));
  step_.reset();
}

} // namespace ddp::detail
