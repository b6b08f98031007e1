#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/core/orphans.h>

#include <ddp/backends/nccl.h>
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
    find_thawed();
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
  meet();
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
      detail::ProcessGroupImpl::of(group_), "the reduction of gradients");
  open_ = true;
  next_ = 0;
  pending_ = managed_;
  ++step_;
  divide_by(join_step_ ? join_step_->divisor : group_.size());
  // A backward that is older than one that was reduced contains it: the engine
  // nests so deeply that it changed threads (see EndOfBackward).
  const int task = torch::autograd::get_current_graph_task_id();
  deeply_nested_ = deeply_nested_ || (task >= 0 && task < newest_task_);
  check_capture();
  recorder_.begin(step_, buckets_);
  notes_order_ = step_ == rebuild_step_ || recorder_.is_on();
  ready_order_.clear();
}

/// A CUDA graph replays the GPU's part of a step without this code: nothing in
/// it may depend on the host.
void ReducerImpl::check_capture() {
  capturing_ =
      std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) {
        return backends::nccl::is_capturing(bucket.content.buffer.device());
      });
  if (!capturing_) {
    return;
  }
  const auto compared = compares_replicas_ ? kComparedSteps : 0;
  const auto before = std::max(rebuild_step_.value_or(1), compared);
  DDP_CHECK(
      step_ > before,
      "capturing a CUDA graph: this is backward {}, and in the first {} the "
      "host settles the buckets and compares the ranks. Run {} or more without "
      "capturing before",
      step_,
      before,
      before);
  DDP_CHECK(
      !check_.is_on() && !optimizer_ && !join_step_,
      "capturing a CUDA graph: check_finite, check_divergence_every, join and "
      "step_in_backward need the host in each step; leave them off");
  DDP_CHECK(
      std::none_of(
          parameters_.begin(),
          parameters_.end(),
          [](const Parameter& parameter) {
            return parameter.managed && parameter.sparse;
          }),
      "capturing a CUDA graph: sparse gradients need the host in each step");
}

/// Which parameters no rank used is agreed on by the hosts.
void ReducerImpl::check_captured_absences() const {
  if (!capturing_ || absent_.empty()) {
    return;
  }
  std::string names;
  for (const size_t index : absent_) {
    names += (names.empty() ? "" : ", ") + parameters_[index].name;
  }
  DDP_THROW(
      Error,
      "capturing a CUDA graph: backward did not reach {}. A captured step "
      "must use every parameter: freeze those before the Reducer is "
      "constructed, or do not capture",
      names);
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
    TORCH_WARN(report);
  }
}

void ReducerImpl::arrive(size_t index, at::Tensor& gradient) {
  auto& parameter = parameters_[index];
  ++parameter.arrivals;
  parameter.task = torch::autograd::get_current_graph_task_id();
  newest_task_ = std::max(newest_task_, parameter.task);
  if (parameter.bucket == kNoBucket) {
    return;
  }
  if (notes_order_ &&
      parameter.arrivals == std::max(1, parameter.expected_arrivals)) {
    ready_order_.push_back(index);
  }
  if (parameter.expected_arrivals == 0 || parameter.nested || deeply_nested_) {
    return; // it may come again: it waits for the end of backward
  }
  DDP_CHECK(
      parameter.share == Share::kPending,
      "the gradient of {} came again in one backward, after its reduction "
      "began: it came {} times in earlier ones. With static_graph backward "
      "inside backward (activation checkpointing) must reach a parameter as "
      "often in each step; without it, only one that the first backward "
      "reached so may come again",
      parameter.name,
      parameter.expected_arrivals);
  if (parameter.arrivals == parameter.expected_arrivals && parameter.used) {
    contribute(index, gradient);
    if (buckets_[parameter.bucket].pending == 0) {
      launch_complete();
    }
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
  adopt_thawed();
  find_absent();
  check_belonging();
  check_captured_absences();
  if (recorder_.is_on()) {
    record_contribution();
  }
  if (options_.skip_all_reduce_unused_params()) {
    skip_unused_buckets();
  }
  if (!absent_.empty()) {
    absences_.announce(step_, absent_);
  }
  for (size_t i = 0; i < parameters_.size() && pending_ > 0; ++i) {
    const auto& parameter = parameters_[i];
    if (parameter.bucket != kNoBucket && parameter.share == Share::kPending &&
        !buckets_[parameter.bucket].skipped) {
      contribute(i, parameter.tensor.mutable_grad());
    }
  }
  launch_complete();
  for (const size_t index : sparse_) {
    if (parameters_[index].managed) {
      launch_sparse(parameters_[index]);
    }
  }
  if (step_ == rebuild_step_) {
    agree_on_order();
  }
  if (broadcasts_buffers_) {
    buffer_broadcast_.start(
        buffers_().tensors, group_, join_step_ ? join_step_->last_live : 0);
  }
  // Ranks that do not step any more have parameters of their own.
  const bool all = !join_step_ || join_step_->live == group_.size();
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
    meet();
    guarded([&] {
      begin();
      contribute_rest();
      finish();
    });
  }
  reduced_ = false;
}

} // namespace ddp
