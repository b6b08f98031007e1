#include <ddp/reducer/reducer_impl.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/reducer/core/orphans.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/core/end_of_backward.h>
#include <ddp/reducer/observers/replica_digests.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace ddp {
namespace {

/// In how many backwards to look for leaves that nobody manages.
constexpr int64_t kInspectedSteps = 3;

} // namespace

/// The others wait for a reduction that will not come.
void ReducerImpl::fail(const std::string& reason) {
  failure_ = reason;
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
    open_ = true;
    guarded([&] { inspect_graph(); });
    at_end_of_backward(&ReducerImpl::finish_alone);
    return;
  }
  check_usable();
  participation.announce_reduction();
  guarded([&] {
    begin();
    inspect_graph();
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
  ++step_;
  const auto& join = participation.step();
  reduction_.begin(
      step_,
      join ? join->divisor : group_.size(),
      !participation.has_no_inputs());
  // A backward that is older than one that was reduced contains it: the engine
  // nests so deeply that it changed threads (see EndOfBackward).
  const int task = torch::autograd::get_current_graph_task_id();
  deeply_nested_ = deeply_nested_ || (task >= 0 && task < newest_task_);
  capture_.begin(
      buckets_.all(),
      step_,
      std::max(
          rebuild_.step().value_or(1), compares_replicas_ ? kComparedSteps : 0),
      check_.is_on() || step_in_backward_.optimizer() || join,
      sparse_.any_managed());
  recorder_.begin(step_, buckets_.all());
  rebuild_.begin(step_, recorder_.is_on());
}

void ReducerImpl::inspect_graph() {
  if (!unmanaged_) {
    return;
  }
  const auto report = unmanaged_->inspect([](const at::Tensor& leaf) {
    return detail::gradient_listener(leaf) && !detail::is_orphan(leaf);
  });
  if (step_ == kInspectedSteps) {
    unmanaged_.reset();
  }
  if (!report.empty()) {
    DDP_CHECK(options_.unmanaged_leaves() == Reaction::kWarn, report);
    TORCH_WARN("ddp: ", report);
  }
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
  module_.check(parameters_, absent_);
  capture_.check_all_used(parameters_, absent_);
  if (recorder_.is_on()) {
    record_contribution();
  }
  if (options_.skip_all_reduce_unused_params()) {
    skip_unused_buckets();
  }
  if (!absent_.empty()) {
    unused_agreement_.announce(step_);
  }
  reduction_.mark_rest_ready();
  sparse_.launch(
      reduction_.divisor(),
      !participation.has_no_inputs(),
      [this](const ParameterState& parameter, const at::Tensor& gradient) {
        reduction_.check_fit(parameter, gradient);
        on_own_gradient(parameter, gradient);
      });
  if (step_ == rebuild_.step()) {
    rebuild_.start(parameters_);
  }
  const auto& join = participation.step();
  if (broadcasts_buffers_) {
    buffer_broadcast_.start(
        buffers_().tensors, group_, join ? join->last_live : 0);
  }
  // Ranks that do not step any more have parameters of their own.
  const bool all = !join || join->live == group_.size();
  check_.start(step_, group_, all);
  if (step_ == kComparedSteps && compares_replicas_) {
    detail::compare_first_gradients(store_, group_, first_gradients_);
  }
}

void ReducerImpl::finish_backward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!group_.c10d() || !synchronizes()) {
    return;
  }
  check_usable();
  DDP_CHECK(
      finishes_ || step_ <= 1,
      "finish_backward() is called for the first time after {} reductions: "
      "call it in every step from the first on, on all ranks, or it cannot "
      "know whether this step was reduced",
      step_);
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

bool ReducerImpl::watches_parameters() const {
  return check_.is_on() || measured_.is_on() || compares_gradients();
}

void ReducerImpl::on_own_gradient(
    const ParameterState& parameter,
    const at::Tensor& gradient) {
  if (check_.is_on()) {
    check_.look_at(parameter.name, gradient);
  }
  if (compares_gradients()) {
    detail::add_to_digest(first_gradients_, gradient);
  }
}

void ReducerImpl::on_parameter_ready(size_t index) {
  measured_.ready(index);
}

void ReducerImpl::on_bucket_ready(const Bucket& bucket) {
  recorder_.note(bucket.content.index, &BucketTimes::ready);
}

void ReducerImpl::on_launch(const Bucket& bucket) {
  recorder_.launching(bucket.content.index);
}

void ReducerImpl::on_launched(const Bucket& bucket) {
  recorder_.launched(bucket);
}

void ReducerImpl::on_wait(const Bucket& bucket) {
  recorder_.note(bucket.content.index, &BucketTimes::waiting);
  detail::heartbeat::began_bucket(
      bucket.content.index + 1, buckets_.size(), step_, one_of_several_.text());
}

/// Other ranks may compare something that this one does not.
void ReducerImpl::on_long_wait() {
  if (managed_ < parameters_.size() ||
      options_.skip_all_reduce_unused_params()) {
    comparison_.check_others(step_);
  }
}

void ReducerImpl::on_waited(const Bucket& bucket) {
  recorder_.note(bucket.content.index, &BucketTimes::waited);
}

} // namespace ddp
