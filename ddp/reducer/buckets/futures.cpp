#include <ddp/reducer/buckets/futures.h>

#include <ddp/internal/check.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace ddp::detail {

Future future_like(const at::Tensor& tensor) {
  std::vector<c10::Device> devices;
  if (!tensor.is_cpu()) {
    devices.push_back(tensor.device());
  }
  return c10::make_intrusive<c10::ivalue::Future>(
      c10::TensorType::get(), std::move(devices));
}

Future completed_future(const at::Tensor& tensor) {
  auto future = future_like(tensor);
  future->markCompleted(tensor);
  return future;
}

Future all_reduce(const at::Tensor& tensor, const ProcessGroup& group) {
  // One rank's tensor is the sum. A GPU's backend runs anyway, for benchmarks.
  if (!group.c10d() || (group.size() == 1 && tensor.is_cpu())) {
    return completed_future(tensor);
  }
  std::vector<at::Tensor> tensors{tensor};
  return group.c10d()->allreduce(tensors)->getFuture();
}

Future all_reduce_mean(const at::Tensor& tensor, const ProcessGroup& group) {
  if (group.size() > 1) {
    at::Tensor(tensor).div_(group.size());
  }
  return all_reduce(tensor, group);
}

Future run_inner(
    CommHook& hook,
    const GradBucket& bucket,
    const ProcessGroup& group) {
  if (hook.takes_scaled_gradients() && group.size() > 1) {
    at::Tensor(bucket.buffer).div_(group.size());
  }
  auto future = hook.run(bucket, group);
  DDP_CHECK(future, "the communication hook returned no future");
  return future;
}

at::Tensor result_of(c10::ivalue::Future& future) {
  const auto value = future.value();
  if (value.isTensor()) {
    return value.toTensor();
  }
  if (value.isTensorList()) {
    const auto list = value.toTensorVector();
    if (list.size() == 1) {
      return list.front();
    }
  }
  DDP_THROW(
      Error,
      "the communication hook's future contains a value of type {}, expected a "
      "tensor or a list of one tensor",
      value.tagKind());
}

at::Tensor result_for(c10::ivalue::Future& future, const at::Tensor& buffer) {
  auto result = result_of(future);
  DDP_CHECK(
      result.defined() && !result.is_sparse(),
      "the communication hook's result is {} tensor",
      result.defined() ? "a sparse" : "an undefined");
  if (buffer.is_complex() && result.numel() == 2 * buffer.numel() &&
      result.scalar_type() == c10::toRealValueType(buffer.scalar_type())) {
    result = at::view_as_complex(result.contiguous().view({-1, 2}));
  }
  DDP_CHECK(
      result.numel() == buffer.numel() &&
          result.scalar_type() == buffer.scalar_type(),
      "the communication hook's result has {} elements of {}, but the bucket "
      "has {} of {}",
      result.numel(),
      result.scalar_type(),
      buffer.numel(),
      buffer.scalar_type());
  return result;
}

void follow_default_stream(
    const ProcessGroup& group,
    c10::Device device,
    std::optional<c10::DeviceType> reduced_by) {
  if (device.is_cpu()) {
    return;
  }
  const auto type = reduced_by.value_or(device.type());
  if (group.c10d()->getBackend(type)->getBackendName() != "gloo") {
    return;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  c10::Event done(device.type());
  done.record(guard.getDefaultStream(device));
  done.block(current_stream(device));
}

} // namespace ddp::detail
