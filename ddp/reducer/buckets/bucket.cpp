#include <ddp/reducer/buckets/bucket.h>

#include <ddp/backends/nccl.h>
#include <ddp/environment/environment.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

namespace ddp {
namespace {

/// A failed allocation in NCCL's pool would leave this thread, with LibTorch's
/// later allocations, in that pool. This function tries an allocation outside
/// the pool.
bool can_allocate(
    c10d::Backend& backend,
    int64_t numel,
    const at::TensorOptions& options) {
  const auto bytes = numel * static_cast<int64_t>(options.dtype().itemsize());
  try {
    const c10::DeviceGuard guard(options.device());
    backend.getMemAllocator()->allocate(bytes);
    return true;
  } catch (const c10::Error& error) {
    backends::nccl::clear_last_error();
    TORCH_WARN_ONCE(
        "ddp: the memory of backend ",
        backend.getBackendName(),
        " has no room for a bucket of ",
        bytes,
        " bytes on ",
        options.device(),
        " (",
        error.what_without_backtrace(),
        "): using LibTorch's memory instead. With DDP_DISABLE_COMM_MEM=1, ddp "
        "uses LibTorch's memory from the start");
    return false;
  }
}

bool offers_memory(
    c10d::Backend& backend,
    int64_t numel,
    const at::TensorOptions& options) {
  const auto device = options.device();
  if (!backend.supportsTensorAlloc(device.index())) {
    return false;
  }
  if (device.is_cpu()) {
    return true;
  }
  if (device.is_cuda() && !backends::nccl::has_memory_pools()) {
    return false;
  }
  const auto disabled =
      integer_variable(process_environment(), "DDP_DISABLE_COMM_MEM", 0, 1);
  return disabled.value_or(0) == 0 && can_allocate(backend, numel, options);
}

at::Tensor allocate(
    int64_t numel,
    const at::TensorOptions& options,
    const ProcessGroup& group) {
  if (const auto c10d_group = group.c10d()) {
    const auto device = options.device();
    const auto backend = c10d_group->getBackend(device.type());
    // NCCL's memory is for one GPU: the group's, if a model uses two.
    const auto own = group.device();
    const bool is_second =
        own.type() == device.type() && own.has_index() && own != device;
    if (!is_second && offers_memory(*backend, numel, options)) {
      try {
        return backend->allocateTensor(numel, options).zero_();
      } catch (const c10::OutOfMemoryError&) { // this memory may be small
        if (!device.is_cpu()) {
          throw;
        }
      }
    }
  }
  return at::zeros({numel}, options);
}

/// The gradient has its parameter's strides if these have no gaps or overlaps
/// (LibTorch's gradient layout contract), so that optimizers read both in the
/// same order. To autograd the slice is not a view: zero_grad() detaches
/// gradients in place, which views do not allow.
at::Tensor slice_for(
    const at::Tensor& flat,
    int64_t offset,
    const at::Tensor& parameter) {
  const auto view = parameter.is_non_overlapping_and_dense()
      ? flat.as_strided(parameter.sizes(), parameter.strides(), offset)
      : flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
  return view.variable_data();
}

} // namespace

Bucket make_bucket(
    const std::vector<at::Tensor>& parameters,
    const BucketIndices& indices,
    const ProcessGroup& group) {
  const c10::InferenceMode normal_tensors(false);
  const at::NoGradGuard no_grad;
  int64_t numel = 0;
  for (const size_t index : indices) {
    numel += parameters[index].numel();
  }
  const auto options =
      parameters[indices.front()].options().requires_grad(false);
  Bucket bucket;
  // At least one element: the agreement on unused parameters needs a reduction.
  bucket.content.buffer = allocate(std::max(numel, int64_t{1}), options, group);
  int64_t offset = 0;
  for (const size_t index : indices) {
    const auto& parameter = parameters[index];
    bucket.content.parameters.push_back(parameter);
    bucket.content.gradients.push_back(
        slice_for(bucket.content.buffer, offset, parameter));
    offset += parameter.numel();
  }
  bucket.pending = indices.size();
  bucket.indices = indices;
  return bucket;
}

} // namespace ddp
