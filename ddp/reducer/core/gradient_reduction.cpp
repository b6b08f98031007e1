#include <ddp/reducer/core/gradient_reduction.h>

#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/buckets/futures.h>
#include <ddp/support/current_stream.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace ddp::detail {
namespace {

/// In elements. From this size on, a separate kernel takes less time on an H100
/// than a second pass that scales the copy.
constexpr int64_t kLargeOnGpu = 1 << 20;

/// The gradient without the graph that create_graph gives it.
at::Tensor values_of(const at::Tensor& grad) {
  return grad.requires_grad() ? grad.detach() : grad;
}

} // namespace

GradientReduction::GradientReduction(
    std::vector<ParameterState>& parameters,
    BucketStorage& buckets,
    const ProcessGroup& group,
    const ReducerOptions& options,
    const ObserverList& observers)
    : parameters_(parameters),
      buckets_(buckets),
      group_(group),
      observers_(observers),
      hook_(
          options.comm_hook() ? options.comm_hook()
                              : std::make_shared<AllReduceHook>()),
      prescale_(hook_->takes_scaled_gradients()),
      by_division_(options.gradient_as_bucket_view()) {}

/// The factor is a reciprocal, as in torch.distributed: it rounds differently
/// from a true division.
void GradientReduction::begin(const Reduction& reduction) {
  step_ = reduction.step;
  has_inputs_ = reduction.has_inputs;
  next_ = 0;
  if (reduction.divisor != divisor_) {
    divisor_ = reduction.divisor;
    factor_ = make_factor(1.0 / static_cast<double>(divisor_));
  }
}

void GradientReduction::mark_ready(size_t index, at::Tensor& gradient) {
  auto& parameter = parameters_[index];
  if (gradient.defined() && has_inputs_) {
    observers_.check_gradient(parameter, gradient);
  }
  if (parameter.used && gradient.defined()) {
    copy_or_keep(parameter, gradient);
  } else {
    mark_unused(parameter);
  }
  auto& bucket = buckets_[parameter.bucket];
  for (auto* observer : observers_.watching()) {
    observer->on_parameter_ready(index);
  }
  if (--bucket.pending == 0) {
    observers_.tell(&ReductionObserver::on_bucket_ready, bucket);
    launch_complete_buckets();
  }
}

void GradientReduction::mark_rest_ready() {
  if (!all_launched()) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto& parameter = parameters_[i];
      if (parameter.bucket != ParameterState::kNoBucket &&
          parameter.grad_state == GradState::kPending &&
          !buckets_[parameter.bucket].skipped) {
        mark_ready(i, parameter.tensor.mutable_grad());
      }
    }
  }
  launch_complete_buckets(); // if the last buckets are left out
}

/// Copies the gradient into its slice, unless the gradient is already there. On
/// a GPU, `copy_outside` copies the gradients of the whole bucket.
void GradientReduction::copy_or_keep(
    ParameterState& parameter,
    at::Tensor& gradient) {
  if (parameter.lies_in_slice(gradient)) {
    parameter.grad_state = GradState::kUnscaled;
    ++buckets_[parameter.bucket].unscaled;
    return;
  }
  if (!parameter.device.is_cpu()) {
    parameter.grad_state = GradState::kOutside;
    return;
  }
  if (prescale_) {
    scaled_copy(parameter.view, gradient, factor_);
  } else {
    const at::NoGradGuard no_grad;
    parameter.view.copy_(gradient);
  }
  put_slice_in_place(parameter, gradient);
}

/// Replaces the gradient with the slice. The gradient's memory, which is still
/// in the caches, is then free for autograd's next gradient, so a step needs no
/// fresh pages from the system.
void GradientReduction::put_slice_in_place(
    ParameterState& parameter,
    at::Tensor& gradient) {
  parameter.grad_state = GradState::kScaled;
  if (gradient.requires_grad()) {
    parameter.with_graph = gradient;
    populates_ = true;
  } else {
    gradient = parameter.slice();
  }
}

/// The mean includes the earlier gradient of this rank. `restore` needs that
/// gradient if the parameter is globally unused.
void GradientReduction::mark_unused(ParameterState& parameter) {
  const at::NoGradGuard no_grad;
  const auto& grad = parameter.tensor.grad();
  parameter.grad_state = GradState::kUnused;
  populates_ = true;
  if (!grad.defined() || !has_inputs_) {
    parameter.view.zero_();
    return;
  }
  parameter.before = grad.is_alias_of(parameter.view) ? grad.clone() : grad;
  if (parameter.lies_in_slice(grad)) {
    divide(parameter.view);
  } else {
    parameter.view.copy_(grad);
    if (scales()) {
      parameter.view.mul_(factor_.wrapped);
    }
  }
}

/// Launches the complete buckets, in order, since the ranks' collectives must
/// match.
void GradientReduction::launch_complete_buckets() {
  while (next_ < buckets_.size() && buckets_[next_].pending == 0) {
    auto& bucket = buckets_[next_++];
    if (!bucket.skipped) {
      launch_bucket(bucket);
    }
  }
}

void GradientReduction::launch_bucket(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  auto& group = ProcessGroupImpl::of(group_);
  const std::lock_guard<std::recursive_mutex> lock(group.launching);
  check_usable(group, kReduction);
  copy_outside(bucket);
  scale(bucket);
  ++group.launched; // shows which ranks have not arrived
  bucket.content.iteration = step_ - 1;
  observers_.tell(&ReductionObserver::on_launch, bucket);
  defer(group, [&] { bucket.future = hook_->run(bucket.content, group_); });
  DDP_CHECK(bucket.future, "the communication hook returned no future");
  observers_.tell(&ReductionObserver::on_launched, bucket);
}

/// Copies and scales the gradients that are outside the bucket. All small
/// gradients share one kernel, since on a GPU a kernel for each costs more than
/// its copy. A large gradient is scaled by its copy, in one pass.
void GradientReduction::copy_outside(Bucket& bucket) {
  const auto device = bucket.content.buffer.device();
  if (device.is_cpu()) {
    return; // all gradients are in the bucket
  }
  const bool crossed = bucket.streams.join(device);
  std::vector<at::Tensor> slices;
  std::vector<at::Tensor> small;
  for (const size_t index : bucket.indices) {
    auto& parameter = parameters_[index];
    if (parameter.grad_state != GradState::kOutside) {
      continue;
    }
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    const auto values = values_of(gradient);
    if (crossed) { // the memory belongs to another stream
      values.record_stream(current_stream(device));
    }
    if (scales() && values.numel() >= kLargeOnGpu) {
      scaled_copy(parameter.view, values, factor_);
    } else {
      slices.push_back(parameter.view);
      small.push_back(values);
    }
    put_slice_in_place(parameter, gradient);
  }
  if (!slices.empty()) {
    at::_foreach_copy_(slices, small);
    if (scales()) {
      at::_foreach_mul_(slices, factor_.value);
    }
  }
}

/// Scales gradients that are already in a bucket.
void GradientReduction::divide(at::Tensor& gradients) {
  if (scales()) {
    by_division_ ? gradients.div_(divisor_) : gradients.mul_(factor_.wrapped);
  }
}

/// Scales the gradients that autograd accumulated in the bucket.
void GradientReduction::scale(Bucket& bucket) {
  const auto& indices = bucket.indices;
  if (bucket.unscaled == indices.size()) {
    divide(bucket.content.buffer); // one pass for all
  } else if (bucket.unscaled > 0) {
    for (const size_t index : indices) {
      if (parameters_[index].grad_state == GradState::kUnscaled) {
        divide(parameters_[index].view);
      }
    }
  }
  bucket.unscaled = 0;
}

void GradientReduction::wait(Bucket& bucket) {
  observers_.tell(&ReductionObserver::on_wait, bucket);
  wait_for(group_, *bucket.future, kReduction, [this] {
    observers_.tell(&ReductionObserver::on_long_wait);
  });
  observers_.tell(&ReductionObserver::on_waited, bucket);
  auto& buffer = bucket.content.buffer;
  follow_default_stream(group_, buffer.device());
  const at::NoGradGuard no_grad;
  const auto result = result_for(*bucket.future, buffer);
  if (!result.is_alias_of(buffer)) {
    buffer.copy_(result.view_as(buffer));
  }
  bucket.future.reset();
  observers_.tell(&ReductionObserver::on_bucket_done, bucket);
}

void GradientReduction::populate_grad(ParameterState& parameter) {
  at::Tensor& grad = parameter.tensor.mutable_grad();
  if (parameter.with_graph.defined()) {
    // Only the values: the gradient keeps its graph (create_graph).
    const at::NoGradGuard no_grad;
    parameter.with_graph.variable_data().copy_(parameter.view);
    parameter.with_graph.reset();
  } else if (
      parameter.grad_state == GradState::kUnused &&
      parameter.bucket != ParameterState::kNoBucket) {
    grad = parameter.slice();
  }
  parameter.before.reset();
}

void GradientReduction::populate_grads() {
  if (populates_) {
    for (auto& parameter : parameters_) {
      populate_grad(parameter);
    }
  }
}

void GradientReduction::restore(ParameterState& parameter) {
  if (!has_inputs_) {
    parameter.tensor.mutable_grad().reset(); // no optimizer steps with it again
  } else if (parameter.lies_in_slice(parameter.tensor.grad())) {
    parameter.view.copy_(parameter.before);
  }
  parameter.grad_state = GradState::kPending; // no gradient to populate
}

void GradientReduction::reset() {
  for (auto& parameter : parameters_) {
    parameter.expected_arrivals =
        std::max(parameter.expected_arrivals, parameter.arrivals);
    parameter.arrivals = 0;
    parameter.used = false;
    parameter.grad_state = GradState::kPending;
    parameter.remember_version();
  }
  buckets_.reset();
  populates_ = false;
}

} // namespace ddp::detail
