#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/bucket_layout.h>

#include <algorithm>

// Which parameters take part in a backward: what is unfrozen, unused or left
// out, and what ranks compare about it.

namespace ddp {
/// Remembers what is unfrozen now and may be frozen when gradients are averaged
/// next: all ranks then take it in, also those that had no gradient for it.
void ReducerImpl::find_unfrozen() {
  if (managed_ == parameters_.size()) {
    return;
  }
  for (auto& parameter : parameters_) {
    if (!parameter.managed && parameter.tensor.requires_grad()) {
      parameter.unfrozen = true;
    }
  }
}

/// Takes in parameters that were frozen at construction and are not any more.
void ReducerImpl::adopt_unfrozen() {
  if (managed_ == parameters_.size()) {
    return;
  }
  find_unfrozen();
  std::vector<size_t> unfrozen;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    if (!parameter.managed && (parameter.unfrozen || parameter.used)) {
      unfrozen.push_back(i);
    }
  }
  if (unfrozen.empty()) {
    return;
  }
  compare_in_backward(
      "the parameters that were unfrozen since the last backward", unfrozen);
  manage(unfrozen);
  observers_.list.tell(&Observer::on_new_buckets);
}

/// Averages these parameters from now on.
void ReducerImpl::manage(const std::vector<size_t>& indices) {
  std::vector<size_t> dense;
  for (const size_t index : indices) {
    parameters_[index].managed = true;
    ++managed_;
    if (!parameters_[index].sparse) {
      dense.push_back(index);
    }
  }
  const auto buckets = initial_buckets(tensors(), dense, options_);
  buckets_.append(std::move(dense), buckets);
}

void ReducerImpl::find_absent() {
  if (reduction_.is_complete() && observers_.sparse.empty()) {
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    // It may have come while gradients accumulated, and been dropped.
    parameter.used = parameter.used && parameter.tensor.grad().defined();
    if (!parameter.managed ||
        parameter.contribution != Contribution::kPending || parameter.used) {
      continue;
    }
    DDP_CHECK(
        detail::gradient_listener(parameter.tensor) == this,
        "the hook on {} is gone, so its gradients are not averaged: construct "
        "the Reducer after whatever replaces post-accumulate-grad hooks",
        parameter.name);
    current_.unused.push_back(i);
  }
}

/// Of buckets that this rank used nothing of, the parameters count as done.
void ReducerImpl::skip_unused_buckets() {
  std::vector<size_t> skipped;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    auto& bucket = buckets_[i];
    const auto& indices = bucket.indices;
    bucket.skipped =
        std::none_of(indices.begin(), indices.end(), [this](size_t index) {
          return parameters_[index].used;
        });
    if (bucket.skipped) {
      bucket.pending = 0;
      skipped.push_back(i);
    }
  }
  const auto is_skipped = [this](size_t index) {
    const auto bucket = parameters_[index].bucket;
    return bucket != ParameterState::kNoBucket && buckets_[bucket].skipped;
  };
  auto& unused = current_.unused;
  unused.erase(
      std::remove_if(unused.begin(), unused.end(), is_skipped), unused.end());
  if (std::exchange(skipped_, skipped) != skipped) {
    compare_skipped();
  }
}

/// Ranks that skip different buckets would average unrelated gradients.
void ReducerImpl::compare_skipped() {
  std::vector<size_t> unused;
  for (const size_t bucket : skipped_) {
    const auto& indices = buckets_[bucket].indices;
    unused.insert(unused.end(), indices.begin(), indices.end());
  }
  compare_in_backward(
      "the unused parameters that skip_all_reduce_unused_params leaves out",
      unused);
}

/// Waits for the others to come to the same point of this backward with the
/// same parameters.
void ReducerImpl::compare_in_backward(
    const std::string& noun,
    const std::vector<size_t>& indices) {
  std::string names = indices.empty() ? "nothing" : "";
  for (const size_t index : indices) {
    names += (names.empty() ? "" : " ") + parameters_[index].name;
  }
  observers_.comparison.compare(current_.step, noun, names);
}

} // namespace ddp
