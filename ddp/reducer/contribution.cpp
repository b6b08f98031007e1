#include <ddp/reducer/reducer_impl.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/model/tensor_contents.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/scaled_copy.h>
#include <ddp/reducer/observers/replica_digests.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

// What this rank puts into a reduction.

namespace ddp {
namespace {

/// In elements. From there on, on an H100, a kernel of its own takes less time
/// than the second pass that scales what was copied.
constexpr int64_t kLargeOnGpu = 1 << 20;

std::string describe(const at::Tensor& tensor) {
  return c10::str(detail::describe(tensor), " on ", tensor.device());
}

/// The gradient without the graph that create_graph gives it.
at::Tensor values_of(const at::Tensor& grad) {
  return grad.requires_grad() ? grad.detach() : grad;
}

} // namespace

/// Puts this rank's gradient of a parameter into its bucket.
void ReducerImpl::contribute(size_t index, at::Tensor& gradient) {
  auto& parameter = parameters_[index];
  if (gradient.defined() && !participation.has_no_inputs()) {
    check_gradient(parameter, gradient);
  }
  if (parameter.used && gradient.defined()) {
    copy_or_keep(parameter, gradient);
  } else {
    contribute_before(parameter);
  }
  auto& bucket = buckets_[parameter.bucket];
  if (!parameter.device.is_cpu()) {
    bucket.streams.add(parameter.device);
  }
  --pending_;
  measured_.ready(index);
  if (--bucket.pending == 0) {
    recorder_.note(parameter.bucket, &BucketTimes::ready);
  }
}

void ReducerImpl::check_gradient(
    const ParameterState& parameter,
    const at::Tensor& grad) {
  DDP_CHECK(
      grad.is_sparse() == parameter.sparse,
      "the gradient of {}{}",
      parameter.name,
      grad.is_sparse() ? " is sparse: name the parameter in "
                         "ReducerOptions().sparse_parameters"
                       : " was expected to be sparse, but is not");
  DDP_CHECK(
      parameter.fits(grad) && parameter.fits(parameter.tensor),
      "{} was {} {} on {} when the Reducer was constructed; now it is {}, and "
      "its gradient {}: move or convert the module before that",
      parameter.name,
      parameter.dtype,
      c10::IntArrayRef(parameter.sizes),
      parameter.device,
      describe(parameter.tensor),
      describe(grad));
  if (check_.is_on()) {
    check_.look_at(parameter.name, grad);
  }
  if (step_ <= kComparedSteps && compares_replicas_) {
    detail::add_to_digest(first_gradients_, grad);
  }
}

/// Brings the gradient into its slice, unless it lies there or a GPU had better
/// wait for the bucket's others.
void ReducerImpl::copy_or_keep(
    ParameterState& parameter,
    at::Tensor& gradient) {
  if (parameter.lies_in_slice(gradient)) {
    parameter.contribution = Contribution::kUnscaled;
    ++buckets_[parameter.bucket].unscaled;
    return;
  }
  if (!parameter.device.is_cpu()) {
    parameter.contribution = Contribution::kOutside;
    return;
  }
  if (prescale_) {
    detail::scaled_copy(parameter.view, gradient, factor_);
  } else {
    const at::NoGradGuard no_grad;
    parameter.view.copy_(gradient);
  }
  put_slice_in_place(parameter, gradient);
}

/// The slice has what the gradient had. That one's memory is free again, and
/// warm, when autograd makes the next: a step asks the system for no fresh
/// pages.
void ReducerImpl::put_slice_in_place(
    ParameterState& parameter,
    at::Tensor& gradient) {
  parameter.contribution = Contribution::kScaled;
  if (gradient.requires_grad()) {
    parameter.with_graph = gradient;
    hands_out_ = true;
  } else {
    gradient = parameter.view;
  }
}

/// Copies and scales the gradients that lie outside of their bucket, the small
/// ones all at once: on a GPU a kernel for each costs more than what it copies.
/// A large one is read and written once so.
void ReducerImpl::bring_in(Bucket& bucket) {
  const auto device = bucket.content.buffer.device();
  if (device.is_cpu()) {
    return; // each is in already
  }
  const bool crossed = bucket.streams.join(device);
  const bool scales = prescale_ && divisor_ != 1;
  std::vector<at::Tensor> slices;
  std::vector<at::Tensor> small;
  for (const size_t index : bucket.indices) {
    auto& parameter = parameters_[index];
    if (parameter.contribution != Contribution::kOutside) {
      continue;
    }
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    const auto values = values_of(gradient);
    if (crossed) { // its memory belongs to another stream
      values.record_stream(detail::current_stream(device));
    }
    if (scales && values.numel() >= kLargeOnGpu) {
      detail::scaled_copy(parameter.view, values, factor_);
    } else {
      slices.push_back(parameter.view);
      small.push_back(values);
    }
    put_slice_in_place(parameter, gradient);
  }
  if (!slices.empty()) {
    at::_foreach_copy_(slices, small);
    if (scales) {
      at::_foreach_mul_(slices, factor_.item());
    }
  }
}

/// This rank has nothing new. What others have is added to what it has from
/// before; where nobody has, that must not change.
void ReducerImpl::contribute_before(ParameterState& parameter) {
  const at::NoGradGuard no_grad;
  const auto& grad = parameter.tensor.grad();
  parameter.contribution = Contribution::kUnused;
  hands_out_ = true;
  const bool inside = parameter.lies_in_slice(grad);
  if (grad.defined()) {
    parameter.before = grad.is_alias_of(parameter.view) ? grad.clone() : grad;
  }
  if (!grad.defined() || participation.has_no_inputs()) {
    parameter.view.zero_();
  } else if (inside) {
    divide(parameter.view);
  } else {
    parameter.view.copy_(grad);
    if (prescale_) {
      parameter.view.mul_(factor_);
    }
  }
}

/// Starts the buckets that are complete, in order: the ranks' collectives must
/// match.
void ReducerImpl::launch_complete() {
  while (next_ < buckets_.size() && buckets_[next_].pending == 0) {
    auto& bucket = buckets_[next_++];
    if (!bucket.skipped) {
      launch(bucket);
    }
  }
}

void ReducerImpl::launch(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  auto& group = detail::ProcessGroupImpl::of(group_);
  const std::lock_guard<std::recursive_mutex> lock(group.launching);
  detail::check_usable(group, "the reduction of gradients");
  detail::heartbeat::began_bucket(
      bucket.content.index + 1, buckets_.size(), step_);
  bring_in(bucket);
  scale(bucket);
  ++group.launched; // by which a rank that does not come is found
  bucket.content.iteration = step_ - 1;
  recorder_.launching(bucket.content.index);
  bucket.future = hook_->run(bucket.content, group_);
  DDP_CHECK(bucket.future, "the communication hook returned no future");
  recorder_.launched(bucket);
}

/// Scales gradients that lie in a bucket already.
void ReducerImpl::divide(at::Tensor& gradients) {
  if (prescale_ && group_.size() > 1) {
    options_.gradient_as_bucket_view() ? gradients.div_(divisor_)
                                       : gradients.mul_(factor_);
  }
}

/// Scales what no hook has scaled: gradients that autograd added up in place.
void ReducerImpl::scale(Bucket& bucket) {
  const auto& indices = bucket.indices;
  if (bucket.unscaled == indices.size()) {
    divide(bucket.content.buffer); // one pass for all
  } else if (bucket.unscaled > 0) {
    for (const size_t index : indices) {
      if (parameters_[index].contribution == Contribution::kUnscaled) {
        divide(parameters_[index].view);
      }
    }
  }
  bucket.unscaled = 0;
}

} // namespace ddp
