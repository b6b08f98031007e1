#include <ddp/reducer/reducer_impl.h>

#include <c10/util/Type.h>

#include <typeinfo>

namespace ddp {

Statistics ReducerImpl::statistics() const {
  Statistics result;
  observers.recorder.describe(result);
  result.iteration = backward.steps();
  const auto& hook = reduction.hook();
  result.comm_hook = c10::demangle(typeid(hook).name());
  for (const auto& parameter : parameters) {
    if (parameter.trainable) {
      ++result.num_parameter_tensors;
      result.total_parameter_size_bytes +=
          static_cast<int64_t>(parameter.tensor.nbytes());
    }
  }
  result.has_rebuilt_buckets = buckets.is_rebuilt();
  result.bucket_sizes =
      buckets.is_rebuilt() ? buckets.first_sizes() : buckets.sizes();
  if (buckets.is_rebuilt()) {
    result.rebuilt_bucket_sizes = buckets.sizes();
    result.rebuilt_per_bucket_param_indices = buckets.indices();
  }
  return result;
}

} // namespace ddp
