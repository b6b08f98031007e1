#include <ddp/reducer/core/unfrozen_parameters.h>

#include <ddp/reducer/buckets/bucket_layout.h>

namespace ddp::detail {

UnfrozenParameters::UnfrozenParameters(
    std::vector<ParameterState>& parameters,
    BucketStorage& buckets,
    BackwardComparison& comparison,
    const ReducerOptions& options)
    : parameters_(parameters),
      buckets_(buckets),
      comparison_(comparison),
      options_(options) {}

void UnfrozenParameters::make_trainable(const std::vector<size_t>& indices) {
  std::vector<size_t> dense;
  for (const size_t index : indices) {
    if (!parameters_[index].sparse) {
      dense.push_back(index);
    }
  }
  take(indices);
  const auto buckets = initial_buckets(buckets_.tensors(), dense, options_);
  buckets_.append(std::move(dense), buckets);
}

void UnfrozenParameters::record() {
  if (all_trainable()) {
    return;
  }
  for (auto& parameter : parameters_) {
    if (!parameter.trainable && parameter.tensor.requires_grad()) {
      parameter.unfrozen = true;
    }
  }
}

void UnfrozenParameters::record_in(int task) {
  if (task != searched_task_) {
    searched_task_ = task;
    record();
  }
}

bool UnfrozenParameters::adopt(int64_t step) {
  if (all_trainable()) {
    return false;
  }
  record();
  std::vector<size_t> unfrozen;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    if (!parameter.trainable && (parameter.unfrozen || parameter.used)) {
      unfrozen.push_back(i);
    }
  }
  if (unfrozen.empty()) {
    return false;
  }
  comparison_.compare(
      step,
      "the parameters that were unfrozen since the last backward pass",
      parameters_,
      unfrozen);
  make_trainable(unfrozen);
  return true;
}

void UnfrozenParameters::release() {
  for (auto& parameter : parameters_) {
    if (!parameter.sparse && parameter.trainable) {
      parameter.trainable = false;
      parameter.bucket = ParameterState::kNoBucket;
      --trainable_;
    }
  }
}

void UnfrozenParameters::take(const BucketStorage::Order& order) {
  for (const size_t index : order) {
    parameters_[index].trainable = true;
    ++trainable_;
  }
}

} // namespace ddp::detail
