#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/end_of_backward.h>

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
    if (!sync_.decides_now()) {
      accumulate();
      return;
    }
    open();
  }
  guarded([&] { arrive(index, gradient); });
}

/// A gradient of a backward that communicates nothing.
void ReducerImpl::accumulate() {
  accumulated_ = true;
  unfrozen_.find_in(torch::autograd::get_current_graph_task_id());
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
  nested_.begin(torch::autograd::get_current_graph_task_id());
  observers_.begin(current_, rebuild_.step().value_or(1), join.has_value());
  observers_.comparison.expect(!unfrozen_.all_managed() || skipped_);
  reduction_.begin(current_);
  rebuild_.begin(current_.step, observers_.recorder.is_on());
}

void ReducerImpl::arrive(size_t index, at::Tensor& gradient) {
  auto& parameter = parameters_[index];
  nested_.arrive(parameter, torch::autograd::get_current_graph_task_id());
  if (parameter.bucket == ParameterState::kNoBucket) {
    return;
  }
  if (parameter.arrivals == std::max(1, parameter.expected_arrivals)) {
    rebuild_.ready(index);
  }
  if (nested_.may_come_again(parameter)) {
    return; // it waits for the end of backward
  }
  DDP_CHECK(
      parameter.contribution == ParameterState::Contribution::kPending,
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

/// At the end of backward: contributes for parameters that it did not reach.
void ReducerImpl::contribute_rest() {
  nested_.learn(parameters_, torch::autograd::get_current_graph_task_id());
  if (unfrozen_.adopt(current_.step)) {
    observers_.list.tell(&Observer::on_new_buckets);
  }
  if (!reduction_.is_complete() || !observers_.sparse.empty()) {
    current_.unused = unused_.find(*this);
  }
  observers_.list.tell(&Observer::on_computed, current_);
  if (skipped_) {
    skipped_->leave_out(current_);
  }
  unused_.announce(current_);
  reduction_.mark_rest_ready();
  if (current_.step == rebuild_.step()) {
    rebuild_.start(parameters_);
  }
  observers_.list.tell(&Observer::on_all_launched, current_);
}

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
  unused_.restore(current_);
  reduction_.hand_out_all();
  observers_.list.tell(&Observer::on_handed_out);
  close();
}

/// Makes ready for the next backward.
void ReducerImpl::close() {
  current_.unused.clear();
  reduction_.end();
  open_ = false;
  sync_.reduced();
  observers_.list.tell(&Observer::on_end, current_);
  if (current_.step == rebuild_.step()) {
    rebuild_.finish();
  }
}

void ReducerImpl::finish_backward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!group_.c10d() || !synchronizes()) {
    return;
  }
  check_usable();
  if (sync_.finish(current_.step)) {
    participation.announce_reduction();
    guarded([&] {
      begin();
      contribute_rest();
      finish();
    });
  }
  sync_.forget_reduced();
}

} // namespace ddp
