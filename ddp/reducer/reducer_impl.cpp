#include <ddp/reducer/reducer_impl.h>

#include <ddp/debug/observed.h>
#include <ddp/internal/check.h>

#include <ddp/process_group/agreement/same_on_all.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/core/bucket_layout.h>
#include <ddp/reducer/core/orphans.h>
#include <ddp/reducer/observers/stepped_optimizers.h>
#include <ddp/support/optimizer_text.h>

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/lbfgs.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

namespace ddp {
namespace {

std::string next_name(const ProcessGroup& group) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  return c10::str(impl.scope, "/reducer_", impl.reducers++);
}

/// A parameter's name. Those of a list have numbers.
std::string in_words(const std::string& name) {
  const bool is_number =
      name.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? "parameter " + name : name;
}

/// A part of the group's store for one Reducer.
c10::intrusive_ptr<c10d::Store> own_store(
    const ProcessGroup& group,
    const std::string& name) {
  const auto store = group.store();
  return store ? c10::make_intrusive<c10d::PrefixStore>(name, store) : nullptr;
}

} // namespace

ReducerImpl::ReducerImpl(
    detail::ManagedState state,
    ProcessGroup group,
    ReducerOptions options,
    SyncDecision sync_decision)
    : decision(sync_decision),
      group_(std::move(group)),
      name_(next_name(group_)),
      options_(std::move(options)),
      broadcasts_buffers_(
          sync_decision == SyncDecision::kInBackward &&
          options_.broadcast_buffers()),
      buffers_(std::move(state.buffers)),
      current_(std::move(state.current)),
      owned_(std::move(state.owned)),
      hook_(
          options_.comm_hook() ? options_.comm_hook()
                               : std::make_shared<AllReduceHook>()),
      prescale_(hook_->takes_scaled_gradients()),
      store_(own_store(group_, name_)),
      absences_(store_, group_.rank(), group_.size(), group_.timeout()),
      compares_replicas_(
          group_.size() > 1 &&
          detail::ProcessGroupImpl::of(group_).checks_replicas),
      check_(
          state.parameters,
          options_.check_divergence_every(),
          options_.check_finite()),
      timeline_file_(detail::TimelineFile::make(options_, name_)),
      recorder_(
          options_.sample_rate(),
          timeline_file_ ? timeline_file_->steps() : detail::StepRange()) {
  recorder_.record_all(options_.record());
  rebuild_step_ = rebuilds_after(options_);
  check_caps(options_);
  const auto trainable = add_parameters(state);
  one_of_several_.name(parameters_.front().key, parameters_.size());
  if (options_.unmanaged_leaves() != Reaction::kIgnore) {
    auto known = options_.known_leaves();
    known.insert(known.end(), state.ignored.begin(), state.ignored.end());
    unmanaged_.emplace(state.parameters, known);
  }
  if (!group_.c10d()) {
    claim_hook();
    attach();
    return;
  }
  divide_by(group_.size());
  manage(trainable);
  first_sizes_ = bucket_sizes();
  start_trial();
  claim_hook();
  attach();
  debug::announce_reducer(group_, name_, trainable.size(), buckets_.size());
}

ReducerImpl::~ReducerImpl() {
  detach();
  if (optimizer_) {
    detail::set_stepped_in_backward(*optimizer_, false);
  }
  if (timeline_file_) {
    timeline_file_->write(group_); // where not all of its steps came
  }
  if (detail::ProcessGroupImpl::of(group_).hosts_store) {
    absences_.linger(step_); // the store may end with this process
  }
}

/// Returns those that require a gradient.
std::vector<size_t> ReducerImpl::add_parameters(
    const detail::ManagedState& state) {
  std::vector<size_t> trainable;
  for (size_t i = 0; i < state.parameters.tensors.size(); ++i) {
    auto& parameter = parameters_.emplace_back();
    parameter.tensor = state.parameters.tensors[i];
    parameter.key = state.parameters.names[i];
    parameter.name = in_words(parameter.key);
    parameter.sizes = parameter.tensor.sizes().vec();
    parameter.dtype = parameter.tensor.scalar_type();
    parameter.device = parameter.tensor.device();
    parameter.sparse = state.sparse[i];
    has_threads_ = has_threads_ || !parameter.device.is_cpu();
    if (parameter.sparse) {
      sparse_.push_back(i);
    }
    if (parameter.tensor.requires_grad()) {
      trainable.push_back(i);
    }
  }
  DDP_CHECK_VALUE(
      !trainable.empty(),
      "no parameter requires a gradient: there is nothing to reduce. Construct "
      "the Reducer after the parameters, do not freeze all of them, and keep "
      "modules in torch::nn::ModuleList, not in a plain std::vector");
  return trainable;
}

/// By a reciprocal, as in torch.distributed: it rounds differently from a true
/// division.
void ReducerImpl::divide_by(int64_t divisor) {
  if (divisor != divisor_) {
    divisor_ = divisor;
    factor_ = at::native::wrapped_scalar_tensor(
        at::Scalar(1.0 / static_cast<double>(divisor)));
  }
}

bool ReducerImpl::shares_parameters(
    const torch::optim::Optimizer& optimizer) const {
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& theirs : group.params()) {
      for (const auto& ours : parameters_) {
        if (theirs.is_same(ours.tensor)) {
          return true;
        }
      }
    }
  }
  return false;
}

void ReducerImpl::step_in_backward(torch::optim::Optimizer& optimizer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DDP_CHECK_VALUE(
      !dynamic_cast<torch::optim::LBFGS*>(&optimizer),
      "step_in_backward: LBFGS looks at all parameters at once");
  DDP_CHECK_VALUE(
      !dynamic_cast<Joinable*>(&optimizer),
      "step_in_backward: this optimizer communicates in its step");
  DDP_CHECK_VALUE(
      shares_parameters(optimizer),
      "step_in_backward: the optimizer has none of the Reducer's parameters");
  detail::check_same_on_all(
      group_, "step_in_backward", detail::describe(optimizer));
  if (!group_.c10d() && !looks_alone()) {
    attach();
  }
  if (optimizer_) {
    detail::set_stepped_in_backward(*optimizer_, false);
  }
  optimizer_ = &optimizer;
  detail::set_stepped_in_backward(optimizer, true);
}

/// Not from a Reducer that still uses it.
void ReducerImpl::claim_hook() {
  const auto* user = static_cast<ReducerImpl*>(hook_->user_);
  DDP_CHECK_VALUE(
      !user || !user->is_of_use(),
      "the communication hook {} serves another Reducer already, and would "
      "mix the state of the two: make one for each, or destroy the other "
      "Reducer first",
      hook_->describe());
  hook_->user_ = this;
}

/// Frozen parameters get a hook too: they may be thawed.
void ReducerImpl::attach() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    detail::adopt_orphan(parameter.tensor);
    auto* other =
        static_cast<ReducerImpl*>(detail::gradient_listener(parameter.tensor));
    if (other && !other->is_of_use()) {
      other->detach(); // it is of no use any more, and may be replaced
      other = nullptr;
    }
    if (other) {
      detach();
    }
    DDP_CHECK_VALUE(
        !other,
        "the parameter {} belongs to another Reducer already: destroy that "
        "one first, or pass this one the parameters that are left",
        parameter.key);
    detail::add_gradient_hook(parameter.tensor, *this, i);
  }
}

void ReducerImpl::detach() {
  for (const auto& parameter : parameters_) {
    detail::remove_gradient_hook(parameter.tensor, *this);
  }
  if (hook_->user_ == this) {
    hook_->user_ = nullptr;
  }
}

std::vector<at::Tensor> ReducerImpl::tensors() const {
  std::vector<at::Tensor> result;
  for (const auto& parameter : parameters_) {
    result.push_back(parameter.tensor);
  }
  return result;
}

std::vector<BucketIndices> ReducerImpl::bucket_indices() const {
  std::vector<BucketIndices> indices;
  for (const auto& bucket : buckets_) {
    indices.push_back(bucket.indices);
  }
  return indices;
}

/// Adds buckets. Gradients that lie in earlier slices move along.
void ReducerImpl::install(const std::vector<BucketIndices>& indices) {
  const at::NoGradGuard no_grad;
  const size_t first = buckets_.size();
  for (auto& bucket : make_buckets(tensors(), indices, group_)) {
    bucket.content.index = buckets_.size();
    buckets_.push_back(std::move(bucket));
  }
  for (size_t b = first; b < buckets_.size(); ++b) {
    const auto& bucket = buckets_[b];
    for (size_t k = 0; k < bucket.indices.size(); ++k) {
      auto& parameter = parameters_[bucket.indices[k]];
      const auto& view = bucket.content.gradients[k];
      if (parameter.lies_in_slice(parameter.tensor.grad())) {
        view.copy_(parameter.tensor.grad());
        parameter.tensor.mutable_grad() = view;
      }
      parameter.bucket = b;
      parameter.view = view;
      parameter.remember_version();
    }
  }
  for (auto& bucket : buckets_) {
    bucket.content.is_last = &bucket == &buckets_.back();
  }
}

void ReducerImpl::begin_no_sync() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++no_sync_depth_;
  forward_pending_ = false;
}

void ReducerImpl::end_no_sync() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --no_sync_depth_;
  find_thawed(); // also on a rank that had no backward
}

/// Starts to learn the order in which rank 0's gradients came.
void ReducerImpl::agree_on_order() {
  std::vector<bool> came(parameters_.size());
  for (const size_t index : ready_order_) {
    came[index] = true;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].bucket != kNoBucket && !came[i]) {
      ready_order_.push_back(i);
    }
  }
  order_ = at::empty({static_cast<int64_t>(ready_order_.size())}, at::kLong);
  std::copy(
      ready_order_.begin(),
      ready_order_.end(),
      order_.mutable_data_ptr<int64_t>());
  order_work_ = group_.broadcast_async(order_);
}

/// Lays the buckets out in that order, so that the first is complete first.
void ReducerImpl::rebuild_buckets() {
  const auto* order = order_.const_data_ptr<int64_t>();
  orders_.assign(1, std::vector<size_t>(order, order + order_.numel()));
  buckets_.clear();
  install(rebuilt_buckets(tensors(), orders_.front(), options_));
  rebuild_step_.reset();
  laid_out_anew_ = true;
}

} // namespace ddp
