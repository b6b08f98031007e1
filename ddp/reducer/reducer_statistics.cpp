#include <ddp/reducer/reducer_impl.h>

#include <c10/util/Type.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <typeinfo>

// What a Reducer tells of itself.

namespace ddp {

Statistics ReducerImpl::statistics() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Statistics result;
  recorder_.describe(result);
  result.iteration = step_;
  const auto& hook = *hook_;
  result.comm_hook = c10::demangle(typeid(hook).name());
  for (const auto& parameter : parameters_) {
    if (parameter.managed) {
      ++result.num_parameter_tensors;
      result.total_parameter_size_bytes +=
          static_cast<int64_t>(parameter.tensor.nbytes());
    }
  }
  result.has_rebuilt_buckets = laid_out_anew_;
  result.bucket_sizes = laid_out_anew_ ? first_sizes_ : bucket_sizes();
  if (laid_out_anew_) {
    result.rebuilt_bucket_sizes = bucket_sizes();
    result.rebuilt_per_bucket_param_indices = bucket_indices();
  }
  return result;
}

std::vector<int64_t> ReducerImpl::bucket_sizes() const {
  std::vector<int64_t> sizes;
  for (const auto& bucket : buckets_) {
    sizes.push_back(static_cast<int64_t>(bucket.content.buffer.nbytes()));
  }
  return sizes;
}

void ReducerImpl::forward_began() {
  if (group_.c10d()) {
    recorder_.forward_began(step_ + 1);
  }
}

void ReducerImpl::forward_ended() {
  recorder_.forward_ended();
}

/// Where this rank's part of a backward that is recorded is done.
void ReducerImpl::record_contribution() {
  int64_t unused = 0;
  for (const size_t index : absent_) {
    unused += static_cast<int64_t>(parameters_[index].tensor.nbytes());
  }
  recorder_.computed(ready_order_, unused);
}

/// At its end.
void ReducerImpl::record_end() {
  recorder_.finished();
  if (!timeline_file_ || !timeline_file_->steps().contains(step_)) {
    return;
  }
  timeline_file_->add(recorder_.timeline(), recorder_.began());
  if (!timeline_file_->has_clock() && !capturing_) {
    timeline_file_->measure_clock(group_);
  }
  if (step_ == timeline_file_->steps().last) {
    timeline_file_->write(group_);
  }
}

} // namespace ddp
