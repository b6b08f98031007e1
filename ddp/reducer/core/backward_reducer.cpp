#include <ddp/reducer/core/backward_reducer.h>

#include <ddp/internal/check.h>

#include <ddp/join.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/end_of_backward.h>
#include <ddp/support/error_text.h>

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace ddp::detail {

BackwardReducer::BackwardReducer(
    const std::string& name,
    const ProcessGroup& group,
    const ReducerOptions& options,
    const c10::intrusive_ptr<c10d::Store>& store,
    std::vector<ParameterState>& parameters,
    BucketStorage& buckets,
    GradientReduction& reduction,
    BucketRebuild& rebuild,
    BackwardComparison& comparison,
    Synchronization& synchronization,
    ObserverList& observers)
    : name_(name),
      group_(group),
      has_threads_(any_on_device(parameters)),
      parameters_(parameters),
      buckets_(buckets),
      reduction_(reduction),
      rebuild_(rebuild),
      comparison_(comparison),
      sync_(synchronization),
      observers_(observers),
      unused_(
          parameters,
          buckets,
          reduction,
          group,
          store,
          /*kept_together=*/!options.comm_hook()),
      unfrozen_(parameters, buckets, comparison, options),
      nested_(options.static_graph()) {
  if (options.skip_all_reduce_unused_params()) {
    skipped_.emplace(parameters, buckets, comparison);
  }
}

template <typename Function>
void BackwardReducer::guarded(Function&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    fail(error_text(error));
    throw;
  } catch (...) {
    fail("an exception that is not a std::exception");
    throw;
  }
}

/// Reports the failure, since the other ranks wait for this rank's reduction.
void BackwardReducer::fail(const std::string& reason) {
  failure_ = reason;
  observers_.tell(&ReductionObserver::on_failed);
  report_failure(group_, reason);
}

void BackwardReducer::check_not_failed() {
  if (abandoned_.exchange(false) && failure_.empty()) {
    failure_ = "it ended with an exception";
  }
  DDP_CHECK(
      failure_.empty(),
      "an earlier backward pass failed, so the ranks' gradients may differ: "
      "construct a new Reducer on all ranks. That pass failed because: {}",
      failure_);
}

void BackwardReducer::on_gradient(size_t index, at::Tensor& gradient) {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  if (has_threads_) {
    lock.lock();
  }
  auto& parameter = parameters_[index];
  // An undefined gradient does not make the parameter used.
  parameter.used = parameter.used || parameter.has_grown(gradient);
  if (idle()) {
    if (!sync_.decides_now()) {
      sync_.accumulated();
      unfrozen_.record_in(torch::autograd::get_current_graph_task_id());
      return;
    }
    try {
      open();
    } catch (const EarlyTermination&) {
      gradient.reset(); // else the next loop's average would contain it
      throw;
    }
  }
  guarded([&] { arrive(index, gradient); });
}

bool BackwardReducer::idle() const {
  return !open_ || !is_of_use();
}

/// Starts a reduction, inside a backward pass.
void BackwardReducer::open() {
  check_not_failed();
  const auto participants = observers_.open(group_.size());
  guarded([&] {
    begin(participants);
    observers_.tell(&ReductionObserver::on_backward);
    at_end_of_backward(&BackwardReducer::on_end_of_backward);
  });
}

void BackwardReducer::reach_output() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle()) {
    open();
  }
}

void BackwardReducer::at_end_of_backward(void (BackwardReducer::*member)()) {
  EndOfBackward::call(
      name_,
      owner_,
      [this, member] {
        const std::lock_guard<std::mutex> lock(mutex_);
        guarded([&] { (this->*member)(); });
      },
      [this] { // this thread may hold the lock
        abandoned_ = true;
        report_failure(group_, "an exception ended its backward pass");
      });
}

/// In two steps: if several Reducers share a backward pass, all launch their
/// last buckets before one waits.
void BackwardReducer::on_end_of_backward() {
  launch_rest();
  at_end_of_backward(&BackwardReducer::finalize_backward);
}

void BackwardReducer::begin(const Participants& participants) {
  check_usable(ProcessGroupImpl::of(group_), kReduction);
  open_ = true;
  ++current_.step;
  static_cast<Participants&>(current_) = participants;
  nested_.begin(torch::autograd::get_current_graph_task_id());
  rebuild_.begin(current_.step);
  observers_.begin(current_);
  comparison_.expect(!unfrozen_.all_trainable() || skipped_);
  reduction_.begin(current_);
}

void BackwardReducer::arrive(size_t index, at::Tensor& gradient) {
  auto& parameter = parameters_[index];
  nested_.arrive(parameter, torch::autograd::get_current_graph_task_id());
  if (parameter.bucket == ParameterState::kNoBucket) {
    return;
  }
  if (!parameter.device.is_cpu()) {
    buckets_[parameter.bucket].streams.add(parameter.device);
  }
  if (parameter.arrivals == std::max(1, parameter.expected_arrivals)) {
    rebuild_.ready(index);
  }
  if (nested_.may_come_again(parameter)) {
    return; // the gradient waits for the end of backward
  }
  DDP_CHECK(
      parameter.grad_state == GradState::kPending,
      "the gradient of {} arrived again in one backward pass, after the "
      "gradient's reduction began; in earlier backward passes, it arrived {} "
      "times. With static_graph, a backward pass inside a backward pass "
      "(activation checkpointing) must reach a parameter equally often in each "
      "step; without static_graph, only the gradient of a parameter that the "
      "first backward pass reached in this way may arrive again",
      parameter.name(),
      parameter.expected_arrivals);
  if (parameter.arrivals == parameter.expected_arrivals && parameter.used) {
    reduction_.mark_ready(index, gradient);
  }
}

/// Marks ready the parameters that are still pending: unused ones, those that
/// could arrive again (`NestedBackwards`), and in the first backward pass all.
void BackwardReducer::launch_rest() {
  nested_.record(parameters_, torch::autograd::get_current_graph_task_id());
  if (unfrozen_.adopt(current_.step)) {
    observers_.tell(&ReductionObserver::on_new_buckets);
  }
  current_.unused = unused_.find_unused(*this);
  observers_.tell(&ReductionObserver::on_computed, current_);
  if (skipped_) {
    skipped_->leave_out(current_);
  }
  unused_.add_to_counter(current_);
  reduction_.mark_rest_ready();
  if (current_.step == rebuild_.step()) {
    rebuild_.start(parameters_);
  }
  observers_.tell(&ReductionObserver::on_all_launched, current_);
}

void BackwardReducer::finalize_backward() {
  observers_.tell(&ReductionObserver::on_finalize, current_);
  for (auto& bucket : buckets_) {
    if (bucket.future) {
      reduction_.wait(bucket);
    }
  }
  observers_.tell(&ReductionObserver::on_reduced);
  unused_.restore(current_);
  reduction_.populate_grads();
  observers_.tell(&ReductionObserver::on_grads_populated);
  close();
}

/// Prepares for the next backward pass.
void BackwardReducer::close() {
  current_.unused.clear();
  reduction_.reset();
  open_ = false;
  sync_.reduced();
  observers_.tell(&ReductionObserver::on_end, current_);
  if (current_.step == rebuild_.step()) {
    rebuild_.finish();
  }
}

void BackwardReducer::finish_backward() {
  if (!sync_.is_on()) {
    return;
  }
  check_not_failed();
  if (sync_.finish(current_.step)) {
    const auto participants = observers_.open(group_.size());
    guarded([&] {
      begin(participants);
      launch_rest();
      finalize_backward();
    });
  }
  sync_.forget_reduced();
}

void BackwardReducer::begin_without_inputs(const Participants& participants) {
  check_not_failed();
  guarded([&] {
    for (auto& parameter : parameters_) {
      parameter.used = false; // accumulated gradients are not reduced
    }
    begin(participants);
    launch_rest();
  });
}

void BackwardReducer::finish_without_inputs() {
  if (open_) {
    guarded([&] { finalize_backward(); });
    sync_.forget_reduced();
  }
}

} // namespace ddp::detail
