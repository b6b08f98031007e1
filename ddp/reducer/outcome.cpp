#include <ddp/reducer/reducer_impl.h>

#include <common/heartbeat_page.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/buckets/futures.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

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
  if (observers_.list.end_with_collectives()) {
    participation.announce_end();
  }
  for (auto& bucket : buckets_) {
    if (bucket.future) {
      reduction_.wait(bucket);
    }
  }
  observers_.list.tell(&Observer::on_reduced);
  restore_unused();
  reduction_.hand_out_all();
  observers_.list.tell(&Observer::on_handed_out);
  close();
}

/// Whether a group of one, which has nothing to reduce, still wants gradients.
bool ReducerImpl::looks_alone() const {
  return checked_alone_ > 0 || options_.check_finite() ||
      observers_.step_in_backward.optimizer();
}

/// In a group of one: the gradients are what they were.
void ReducerImpl::finish_alone() {
  open_ = false;
  check_alone();
  observers_.list.tell(&Observer::on_all_launched, current_);
  observers_.list.tell(&Observer::on_reduced);
  observers_.list.tell(&Observer::on_handed_out);
  checked_alone_ -= checked_alone_ > 0;
  if (!looks_alone()) {
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
      current_.unused.push_back(i);
    } else if (grad.defined()) {
      reduction_.check_fit(parameter, grad);
      for (auto* observer : observers_.list.watching()) {
        observer->on_own_gradient(parameter, grad);
      }
    }
  }
  observers_.list.tell(&Observer::on_computed, current_);
  current_.unused.clear();
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
  for (const size_t index : current_.unused) {
    unused.mutable_data_ptr<uint8_t>()[index] = 1;
  }
  group_.all_reduce(unused, ReduceOp::kMin);
  std::vector<size_t> result;
  for (const size_t index : current_.unused) {
    if (unused.const_data_ptr<uint8_t>()[index] == 1) {
      result.push_back(index);
    }
  }
  return result;
}

/// Puts back what was there of parameters that no rank used.
void ReducerImpl::restore_unused() {
  if (current_.unused.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  for (const size_t index : unused_by_all()) {
    reduction_.restore(parameters_[index]);
  }
}

/// Makes ready for the next backward.
void ReducerImpl::close() {
  current_.unused.clear();
  reduction_.end();
  open_ = false;
  reduced_ = true;
  forward_pending_ = false;
  observers_.list.tell(&Observer::on_end, current_);
  if (current_.step == rebuild_.step()) {
    rebuild_.finish();
  }
}

} // namespace ddp
