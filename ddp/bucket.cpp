#include <ddp/bucket.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

namespace ddp {
namespace {

at::Tensor allocate(
    int64_t numel,
    const at::TensorOptions& options,
    const ProcessGroup& group) {
  if (const auto c10d_group = group.c10d()) {
    const auto device = options.device();
    const auto backend = c10d_group->getBackend(device.type());
    // NCCL's memory is for one GPU, and for a model on two that is the group's.
    const auto own = group.device();
    const bool is_second =
        own.type() == device.type() && own.has_index() && own != device;
    if (!is_second && backend->supportsTensorAlloc(device.index())) {
      try {
        return backend->allocateTensor(numel, options).zero_();
      } catch (const c10::OutOfMemoryError&) { // it may have less than others
        if (!device.is_cpu()) {
          throw;
        }
      }
    }
  }
  return at::zeros({numel}, options);
}

/// The gradient has its parameter's strides where those are without gaps or
/// overlaps (LibTorch's gradient layout contract), so that optimizers walk both
/// in the same order. To autograd it is no view: zero_grad() detaches gradients
/// in place, which views do not allow.
at::Tensor slice_for(
    const at::Tensor& flat,
    int64_t offset,
    const at::Tensor& parameter) {
  const auto view = parameter.is_non_overlapping_and_dense()
      ? flat.as_strided(parameter.sizes(), parameter.strides(), offset)
      : flat.narrow(0, offset, parameter.numel()).view(parameter.sizes());
  return view.variable_data();
}

Bucket make_bucket(
    const std::vector<at::Tensor>& parameters,
    const BucketIndices& indices,
    const ProcessGroup& group) {
  int64_t numel = 0;
  for (const size_t index : indices) {
    numel += parameters[index].numel();
  }
  const auto options =
      parameters[indices.front()].options().requires_grad(false);
  Bucket bucket;
  // One element at least: ranks agree on absent gradients by the reduction.
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

} // namespace

std::vector<Bucket> make_buckets(
    const std::vector<at::Tensor>& parameters,
    const std::vector<BucketIndices>& indices,
    const ProcessGroup& group) {
  at::NoGradGuard no_grad;
  std::vector<Bucket> buckets;
  for (const auto& bucket_indices : indices) {
    buckets.push_back(make_bucket(parameters, bucket_indices, group));
    auto& content = buckets.back().content;
    content.index = buckets.size() - 1;
    content.is_last = buckets.size() == indices.size();
  }
  return buckets;
}

} // namespace ddp
