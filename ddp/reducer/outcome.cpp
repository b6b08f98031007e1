#include <ddp/reducer/reducer_impl.h>

#include <common/heartbeat_page.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/buckets/futures.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

// What this rank gets out of a reduction.

namespace ddp {
namespace {

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
  const bool measures_clock = timeline_file_ && !timeline_file_->has_clock();
  if (measured_.is_on() || measures_clock || check_.is_on()) {
    participation.announce_end();
  }
  const auto optimizer = step_in_backward_.begin();
  // A bucket's parameters may be stepped before the others' gradients are known
  // where nothing can be put back or refused.
  const bool at_once = optimizer && absent_.empty() && !check_.is_on();
  for (auto& bucket : buckets_) {
    if (bucket.future) {
      reduction_.wait(bucket);
    }
    if (at_once) {
      for (const size_t index : bucket.indices) {
        reduction_.hand_out(parameters_[index]);
      }
      optimizer->step(bucket.content.parameters);
    }
  }
  sparse_.wait();
  check_.finish(group_);
  restore_unused();
  sparse_.hand_out();
  reduction_.hand_out_all();
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
  return checked_alone_ > 0 || options_.check_finite() ||
      step_in_backward_.optimizer();
}

/// In a group of one: the gradients are what they were.
void ReducerImpl::finish_alone() {
  open_ = false;
  check_alone();
  if (auto* optimizer = step_in_backward_.optimizer()) {
    optimizer->step();
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
      reduction_.check_fit(parameter, grad);
      on_own_gradient(parameter, grad);
    }
  }
  module_.check(parameters_, absent_);
  absent_.clear();
  check_.start(0, group_, false);
  check_.finish(group_);
  checked_alone_ -= checked_alone_ > 0;
  if (checked_alone_ == 0) {
    unmanaged_.reset();
  }
}

/// Those of the unused parameters that no rank used. Collective, where all
/// ranks have some.
std::vector<size_t> ReducerImpl::unused_by_all() {
  wait_on_host(
      buckets_.all()); // all ranks have announced when all have started
  detail::check_usable(
      detail::ProcessGroupImpl::of(group_), detail::kReduction);
  if (!unused_agreement_.concerns_all()) {
    return {};
  }
  const detail::heartbeat::Activity activity(
      "backward: which parameters no rank used");
  auto unused =
      at::zeros({static_cast<int64_t>(parameters_.size())}, at::kByte);
  for (const size_t index : absent_) {
    unused.mutable_data_ptr<uint8_t>()[index] = 1;
  }
  group_.all_reduce(unused, ReduceOp::kMin);
  std::vector<size_t> result;
  for (const size_t index : absent_) {
    if (unused.const_data_ptr<uint8_t>()[index] == 1) {
      result.push_back(index);
    }
  }
  return result;
}

/// Puts back what was there of parameters that no rank used.
void ReducerImpl::restore_unused() {
  if (absent_.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  for (const size_t index : unused_by_all()) {
    reduction_.restore(parameters_[index]);
  }
}

/// Makes ready for the next backward.
void ReducerImpl::close() {
  if (recorder_.is_on()) {
    record_end();
  }
  absent_.clear();
  reduction_.end();
  open_ = false;
  reduced_ = true;
  forward_pending_ = false;
  if (!rebuild_.step()) {
    measured_.advance();
  } else if (step_ == rebuild_.step()) {
    rebuild_.finish();
  }
  detail::heartbeat::stepped(step_);
}

} // namespace ddp
