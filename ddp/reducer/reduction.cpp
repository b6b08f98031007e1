#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/end_of_backward.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace ddp {
/// The others wait for a reduction that will not come.
void ReducerImpl::fail(const std::string& reason) {
  failure_ = reason;
  observers_.list.tell(&Observer::on_failed);
  if (group_.c10d()) {
    detail::report_failure(group_, reason);
  }
}

void ReducerImpl::check_usable() {
  if (abandoned_.exchange(false) && failure_.empty()) {
    failure_ = "it ended by an exception";
  }
  DDP_CHECK(
      failure_.empty(),
      "an earlier backward failed, so this rank's gradients and those of the "
      "others may differ: construct the Reducer anew on all ranks. It failed "
      "because: {}",
      failure_);
}

void ReducerImpl::on_gradient(size_t index, at::Tensor& gradient) {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (has_threads_) {
    lock.lock();
  }
  auto& parameter = parameters_[index];
  // Not where what came is undefined.
  parameter.used = parameter.used || parameter.has_grown(gradient);
  if (idle()) {
    if (!communicates()) {
      accumulate();
      return;
    }
    open();
  }
  guarded([&] { arrive(index, gradient); });
}

void ReducerImpl::anchor(const detail::OutputAnchors& outputs) {
  if (!group_.c10d()) {
    return;
  }
  outputs.attach(
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
          const std::lock_guard<std::mutex> lock(self->mutex_);
          if (self->idle()) {
            self->open();
          }
        }
      },
      [this](const at::Tensor& leaf) {
        return detail::gradient_listener(leaf) == this;
      });
  const std::lock_guard<std::mutex> lock(mutex_);
  forward_pending_ = true;
}

/// Whether a backward is reduced that reaches a parameter and has not come
/// through an anchor: a gradient penalty's, which differentiates a gradient.
bool ReducerImpl::communicates() const {
  return decision == SyncDecision::kInForward && group_.c10d()
      ? forward_pending_
      : synchronizes();
}

/// A gradient of a backward that communicates nothing.
void ReducerImpl::accumulate() {
  accumulated_ = true;
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != searched_task_) {
    searched_task_ = task;
    find_unfrozen();
  }
}

bool ReducerImpl::idle() const {
  return !open_ || abandoned_ || !failure_.empty();
}

/// Starts a reduction, inside a backward.
void ReducerImpl::open() {
  if (!group_.c10d()) {
    abandoned_ = false;
    failure_.clear();
    guarded([&] {
      open_ = true;
      observers_.list.begin(current_);
      observers_.list.tell(&Observer::on_backward);
    });
    at_end_of_backward(&ReducerImpl::finish_alone);
    return;
  }
  check_usable();
  participation.announce_reduction();
  guarded([&] {
    begin();
    observers_.list.tell(&Observer::on_backward);
    at_end_of_backward(&ReducerImpl::end_backward);
  });
}

void ReducerImpl::at_end_of_backward(void (ReducerImpl::*member)()) {
  const auto weak = weak_from_this();
  detail::EndOfBackward::call(
      name_,
      [weak, member] {
        if (const auto self = weak.lock()) {
          const std::lock_guard<std::mutex> lock(self->mutex_);
          self->guarded([&] { (*self.*member)(); });
        }
      },
      [weak] { // maybe under the lock
        if (const auto self = weak.lock()) {
          self->abandoned_ = true;
          if (self->group_.c10d()) {
            detail::report_failure(
                self->group_, "an exception ended its backward");
          }
        }
      });
}

/// In two steps, so that where several Reducers share a backward all have
/// started their last buckets before one waits.
void ReducerImpl::end_backward() {
  contribute_rest();
  at_end_of_backward(&ReducerImpl::finish);
}

void ReducerImpl::begin() {
  detail::check_usable(
      detail::ProcessGroupImpl::of(group_), detail::kReduction);
  open_ = true;
  ++current_.step;
  const auto& join = participation.step();
  current_.divisor = join ? join->divisor : group_.size();
  current_.has_inputs = !participation.has_no_inputs();
  current_.of_all = !join || join->live == group_.size();
  current_.root = join ? join->last_live : 0;
  // A backward that is older than one that was reduced contains it: the engine
  // nests so deeply that it changed threads (see EndOfBackward).
  const int task = torch::autograd::get_current_graph_task_id();
  deeply_nested_ = deeply_nested_ || (task >= 0 && task < newest_task_);
  observers_.begin(current_, rebuild_.step().value_or(1), join.has_value());
  observers_.comparison.expect(
      managed_ < parameters_.size() ||
      options_.skip_all_reduce_unused_params());
  reduction_.begin(current_);
  rebuild_.begin(current_.step, observers_.recorder.is_on());
}

void ReducerImpl::arrive(size_t index, at::Tensor& gradient) {
  auto& parameter = parameters_[index];
  ++parameter.arrivals;
  parameter.task = torch::autograd::get_current_graph_task_id();
  newest_task_ = std::max(newest_task_, parameter.task);
  if (parameter.bucket == ParameterState::kNoBucket) {
    return;
  }
  if (parameter.arrivals == std::max(1, parameter.expected_arrivals)) {
    rebuild_.ready(index);
  }
  if (parameter.expected_arrivals == 0 || parameter.nested || deeply_nested_) {
    return; // it may come again: it waits for the end of backward
  }
  DDP_CHECK(
      parameter.contribution == Contribution::kPending,
      "the gradient of {} came again in one backward, after its reduction "
      "began: it came {} times in earlier ones. With static_graph backward "
      "inside backward (activation checkpointing) must reach a parameter as "
      "often in each step; without it, only one that the first backward "
      "reached so may come again",
      parameter.name,
      parameter.expected_arrivals);
  if (parameter.arrivals == parameter.expected_arrivals && parameter.used) {
    reduction_.mark_ready(index, gradient);
  }
}

/// Gradients that came in a backward inside this one may come more often in
/// another step, unless the user says that they do not.
void ReducerImpl::find_nested() {
  const int outermost = torch::autograd::get_current_graph_task_id();
  if (newest_task_ <= outermost) {
    return;
  }
  for (auto& parameter : parameters_) {
    parameter.nested = parameter.nested ||
        (parameter.arrivals > 0 && parameter.task > outermost &&
         !options_.static_graph());
  }
}

/// At the end of backward: contributes for parameters that it did not reach.
void ReducerImpl::contribute_rest() {
  find_nested();
  adopt_unfrozen();
  find_absent();
  observers_.list.tell(&Observer::on_computed, current_);
  if (options_.skip_all_reduce_unused_params()) {
    skip_unused_buckets();
  }
  if (!current_.unused.empty()) {
    unused_agreement_.announce(current_.step);
  }
  reduction_.mark_rest_ready();
  if (current_.step == rebuild_.step()) {
    rebuild_.start(parameters_);
  }
  observers_.list.tell(&Observer::on_all_launched, current_);
}

void ReducerImpl::finish_backward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!group_.c10d() || !synchronizes()) {
    return;
  }
  check_usable();
  DDP_CHECK(
      finishes_ || current_.step <= 1,
      "finish_backward() is called for the first time after {} reductions: "
      "call it in every step from the first on, on all ranks, or it cannot "
      "know whether this step was reduced",
      current_.step);
  finishes_ = true;
  if (!reduced_) {
    participation.announce_reduction();
    guarded([&] {
      begin();
      contribute_rest();
      finish();
    });
  }
  reduced_ = false;
}

} // namespace ddp
