#include <ddp/reducer/reducer_impl.h>

#include <common/heartbeat_page.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/futures.h>
#include <ddp/reducer/observers/partial_step.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

// What this rank gets out of a reduction.

namespace ddp {
namespace {

/// In the message of a wait that failed.
constexpr const char* kReduction = "the reduction of gradients";

/// A GPU's reduction counts as complete once it is queued.
void wait_on_host(const std::vector<Bucket>& buckets) {
  std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> done;
  for (const auto& bucket : buckets) {
    const auto device = bucket.content.buffer.device();
    if (!device.is_cpu() &&
        done.insert({device.type(), device.index()}).second) {
      detail::current_stream(device).synchronize();
    }
  }
}

} // namespace

void ReducerImpl::finish() {
  meet_at_end();
  std::optional<detail::PartialStep> optimizer;
  if (optimizer_) {
    optimizer.emplace(*optimizer_);
  }
  // A bucket's parameters may be stepped before the others' gradients are known
  // where nothing can be put back or refused.
  const bool at_once = optimizer && absent_.empty() && !check_.is_on();
  for (auto& bucket : buckets_) {
    if (bucket.future) {
      wait_for(bucket);
    }
    if (at_once) {
      for (const size_t index : bucket.indices) {
        hand_out(parameters_[index]);
      }
      optimizer->step(bucket.content.parameters);
    }
  }
  for (const size_t index : sparse_) {
    const auto& parameter = parameters_[index];
    if (parameter.sparse_future) {
      detail::wait_for(group_, *parameter.sparse_future, kReduction);
      detail::follow_default_stream(group_, parameter.device, c10::kCPU);
    }
  }
  check_.finish(group_);
  settle_absences();
  if (hands_out_) {
    for (auto& parameter : parameters_) {
      hand_out(parameter);
    }
  }
  if (broadcasts_buffers_) {
    const detail::heartbeat::Activity activity(kBufferBroadcast);
    buffer_broadcast_.finish();
  }
  if (optimizer) {
    optimizer->step_rest();
  }
  close();
}

/// Whether a group of one, which has nothing to reduce, still wants gradients.
bool ReducerImpl::looks_alone() const {
  return checked_alone_ > 0 || options_.check_finite() || optimizer_;
}

/// In a group of one: the gradients are what they were.
void ReducerImpl::finish_alone() {
  open_ = false;
  check_alone();
  if (optimizer_) {
    optimizer_->step();
  } else if (!looks_alone()) {
    detach();
  }
}

/// What would be an error in a larger group is one here, so that a program that
/// runs alone also runs on several ranks.
void ReducerImpl::check_alone() {
  if (checked_alone_ == 0 && !options_.check_finite()) {
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    const auto& grad = parameter.tensor.grad();
    if (std::exchange(parameter.arrivals, 0) == 0) {
      absent_.push_back(i);
    } else if (grad.defined()) {
      check_gradient(parameter, grad);
    }
  }
  check_belonging();
  absent_.clear();
  check_.start(0, group_, false);
  check_.finish(group_);
  checked_alone_ -= checked_alone_ > 0;
  if (checked_alone_ == 0) {
    unmanaged_.reset();
  }
}

void ReducerImpl::wait_for(Bucket& bucket) {
  recorder_.note(bucket.content.index, &BucketTimes::waiting);
  detail::heartbeat::began_bucket(
      bucket.content.index + 1, buckets_.size(), step_, one_of_several_.text());
  detail::wait_for(group_, *bucket.future, kReduction, [this] {
    check_compared_elsewhere();
  });
  recorder_.note(bucket.content.index, &BucketTimes::waited);
  auto& buffer = bucket.content.buffer;
  detail::follow_default_stream(group_, buffer.device());
  const at::NoGradGuard no_grad;
  const auto result = detail::result_for(*bucket.future, buffer);
  if (!result.is_alias_of(buffer)) {
    buffer.copy_(result.view_as(buffer));
  }
  bucket.future.reset();
}

/// Puts back what no rank had anything new for.
void ReducerImpl::settle_absences() {
  if (absent_.empty()) {
    return;
  }
  wait_on_host(buckets_); // the others' lists are there when all have started
  detail::check_usable(detail::ProcessGroupImpl::of(group_), kReduction);
  const at::NoGradGuard no_grad;
  for (const size_t index : absences_.agreed()) {
    auto& parameter = parameters_[index];
    if (parameter.before.defined() &&
        parameter.lies_in_slice(parameter.tensor.grad())) {
      parameter.view.copy_(parameter.before);
    }
    parameter.share = Share::kPending; // nothing to hand out
  }
}

void ReducerImpl::hand_out(Parameter& parameter) {
  at::Tensor& grad = parameter.tensor.mutable_grad();
  if (parameter.sparse_future) {
    if (parameter.share != Share::kPending) {
      grad = detail::result_of(*parameter.sparse_future);
    }
    parameter.sparse_future.reset();
  } else if (parameter.with_graph.defined()) {
    // Values only: what is computed from it may be differentiated further.
    const at::NoGradGuard no_grad;
    parameter.with_graph.variable_data().copy_(parameter.view);
    parameter.with_graph.reset();
  } else if (parameter.share == Share::kAbsent) {
    grad = parameter.view;
  }
  parameter.before.reset();
}

/// Makes ready for the next backward.
void ReducerImpl::close() {
  if (recorder_.is_on()) {
    record_end();
  }
  absent_.clear();
  for (auto& parameter : parameters_) {
    parameter.expected_arrivals =
        std::max(parameter.expected_arrivals, parameter.arrivals);
    parameter.arrivals = 0;
    parameter.used = false;
    parameter.share = Share::kPending;
    parameter.remember_version();
  }
  for (auto& bucket : buckets_) {
    bucket.pending = bucket.indices.size();
    bucket.skipped = false;
  }
  open_ = false;
  hands_out_ = false;
  reduced_ = true;
  forward_pending_ = false;
  if (trial_) {
    advance_trial();
  }
  if (step_ == rebuild_step_) {
    order_work_.wait();
    rebuild_buckets();
  }
  detail::heartbeat::stepped(step_);
}

} // namespace ddp
