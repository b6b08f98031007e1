#include <ddp/reducer/buckets/bucket_storage.h>

#include <ATen/core/grad_mode.h>

#include <utility>

namespace ddp::detail {

BucketStorage::BucketStorage(
    std::vector<ParameterState>& parameters,
    ProcessGroup group)
    : parameters_(parameters), group_(std::move(group)) {}

void BucketStorage::append(
    Order order,
    const std::vector<BucketIndices>& buckets) {
  const at::NoGradGuard no_grad;
  const auto all = tensors();
  for (const auto& indices : buckets) {
    auto bucket = make_bucket(all, indices, group_);
    bucket.content.index = buckets_.size();
    for (size_t k = 0; k < indices.size(); ++k) {
      auto& parameter = parameters_[indices[k]];
      const auto& view = bucket.content.gradients[k];
      auto& gradient = parameter.tensor.mutable_grad();
      const bool moves = parameter.lies_in_slice(gradient);
      parameter.bucket = buckets_.size();
      parameter.set_view(view);
      if (moves) {
        view.copy_(gradient);
        gradient = parameter.slice();
      }
      parameter.remember_version();
    }
    buckets_.push_back(std::move(bucket));
  }
  for (auto& bucket : buckets_) {
    bucket.content.is_last = &bucket == &buckets_.back();
  }
  if (orders_.empty() && !rebuilt_) {
    first_sizes_ = sizes();
  }
  orders_.push_back(std::move(order));
}

void BucketStorage::clear(bool rebuilt) {
  buckets_.clear();
  orders_.clear();
  rebuilt_ = rebuilt;
}

void BucketStorage::reset() {
  for (auto& bucket : buckets_) {
    bucket.pending = bucket.indices.size();
    bucket.skipped = false;
  }
}

std::vector<at::Tensor> BucketStorage::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters_) {
    tensors.push_back(parameter.tensor);
  }
  return tensors;
}

std::vector<BucketIndices> BucketStorage::indices() const {
  std::vector<BucketIndices> indices;
  for (const auto& bucket : buckets_) {
    indices.push_back(bucket.indices);
  }
  return indices;
}

std::vector<int64_t> BucketStorage::sizes() const {
  std::vector<int64_t> sizes;
  for (const auto& bucket : buckets_) {
    sizes.push_back(static_cast<int64_t>(bucket.content.buffer.nbytes()));
  }
  return sizes;
}

} // namespace ddp::detail
