#include <ddp/reducer/reducer_impl.h>

#include <c10/util/Type.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <typeinfo>

// What a Reducer tells of itself.

namespace ddp {

Statistics ReducerImpl::statistics() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Statistics result;
  observers_.recorder.describe(result);
  result.iteration = current_.step;
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
    observers_.recorder.forward_began(current_.step + 1);
  }
}

void ReducerImpl::forward_ended() {
  observers_.recorder.forward_ended();
}

} // namespace ddp
