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
  const auto& hook = reduction_.hook();
  result.comm_hook = c10::demangle(typeid(hook).name());
  for (const auto& parameter : parameters_) {
    if (parameter.managed) {
      ++result.num_parameter_tensors;
      result.total_parameter_size_bytes +=
          static_cast<int64_t>(parameter.tensor.nbytes());
    }
  }
  result.has_rebuilt_buckets = buckets_.is_rebuilt();
  result.bucket_sizes =
      buckets_.is_rebuilt() ? buckets_.first_sizes() : buckets_.sizes();
  if (buckets_.is_rebuilt()) {
    result.rebuilt_bucket_sizes = buckets_.sizes();
    result.rebuilt_per_bucket_param_indices = buckets_.indices();
  }
  return result;
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
  recorder_.computed(rebuild_.ready_order(), unused);
}

/// At its end.
void ReducerImpl::record_end() {
  recorder_.finished();
  if (!timeline_file_ || !timeline_file_->steps().contains(step_)) {
    return;
  }
  timeline_file_->add(recorder_.timeline(), recorder_.began());
  if (!timeline_file_->has_clock() && !capture_.is_capturing()) {
    timeline_file_->measure_clock(group_);
  }
  if (step_ == timeline_file_->steps().last) {
    timeline_file_->write(group_);
  }
}

} // namespace ddp
