#include <ddp/reducer/observers/sparse_gradients.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/buckets/futures.h>
#include <ddp/reducer/core/gradient_reduction.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

namespace ddp::detail {
namespace {

/// A sparse gradient without entries, in the form of an embedding's gradient.
at::Tensor no_rows(const at::Tensor& parameter) {
  auto sizes = parameter.sizes().vec();
  sizes[0] = 0;
  const auto options = parameter.options().requires_grad(false);
  return at::sparse_coo_tensor(
      at::empty({1, 0}, options.dtype(at::kLong)),
      at::empty(sizes, options),
      parameter.sizes());
}

} // namespace

SparseGradients::SparseGradients(
    std::vector<ParameterState>& parameters,
    const ProcessGroup& group,
    const ObserverList& observers)
    : parameters_(parameters), group_(group), observers_(observers) {}

bool SparseGradients::any_trainable() const {
  return std::any_of(indices_.begin(), indices_.end(), [this](size_t index) {
    return parameters_[index].trainable;
  });
}

void SparseGradients::on_all_launched(const Reduction& reduction) {
  const at::NoGradGuard no_grad;
  auto& group = ProcessGroupImpl::of(group_);
  for (const size_t index : indices_) {
    auto& parameter = parameters_[index];
    if (!parameter.trainable) {
      continue;
    }
    const std::lock_guard<std::recursive_mutex> lock(group.launching);
    check_usable(group, kReduction);
    const auto& grad = parameter.tensor.grad();
    const bool contributes = grad.defined() && reduction.has_inputs;
    parameter.grad_state =
        parameter.used ? GradState::kScaled : GradState::kUnused;
    if (contributes) {
      observers_.check_gradient(parameter, grad);
    }
    std::vector<at::Tensor> tensors{
        contributes ? grad.detach().clone().div_(reduction.divisor)
                    : no_rows(parameter.tensor)};
    ++group.launched; // shows which ranks have not arrived
    const auto backend = group_.c10d()->getBackend(c10::kCPU);
    defer(group, [&] {
      parameter.sparse_future =
          backend->allreduce(tensors, c10d::AllreduceOptions())->getFuture();
    });
  }
}

void SparseGradients::on_reduced() {
  for (const size_t index : indices_) {
    const auto& parameter = parameters_[index];
    if (parameter.sparse_future) {
      wait_for(group_, *parameter.sparse_future, kReduction);
      follow_default_stream(group_, parameter.device, c10::kCPU);
    }
  }
}

void SparseGradients::on_grads_populated() {
  for (const size_t index : indices_) {
    auto& parameter = parameters_[index];
    if (const auto future = std::exchange(parameter.sparse_future, nullptr);
        future && parameter.grad_state != GradState::kPending) {
      parameter.tensor.mutable_grad() = result_of(*future);
    }
  }
}

} // namespace ddp::detail
