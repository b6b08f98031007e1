#include <ddp/reducer/reducer_impl.h>

#include <ddp/debug/observed.h>
#include <ddp/internal/check.h>

#include <ddp/process_group/collective_wait.h>
#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/buckets/bucket_layout.h>
#include <ddp/reducer/core/orphans.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

namespace ddp {
namespace {

std::string next_name(const ProcessGroup& group) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  return c10::str(impl.scope, "/reducer_", impl.reducers++);
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
    const detail::ManagedState& state,
    ProcessGroup group,
    ReducerOptions options,
    SyncDecision decision)
    : group_(std::move(group)),
      name_(next_name(group_)),
      options_(std::move(options)),
      buckets_(parameters_, group_),
      reduction_(parameters_, buckets_, group_, options_, observers_.list),
      rebuild_(options_, buckets_, group_),
      store_(own_store(group_, name_)),
      observers_(
          state,
          options_,
          group_,
          decision == SyncDecision::kInBackward && options_.broadcast_buffers(),
          name_,
          store_,
          parameters_,
          buckets_,
          rebuild_,
          reduction_),
      unused_(
          parameters_,
          buckets_,
          reduction_,
          group_,
          store_,
          /*kept_together=*/!options_.comm_hook()),
      unfrozen_(parameters_, buckets_, observers_.comparison, options_),
      nested_(options_.static_graph()),
      sync_(group_.c10d() ? decision : SyncDecision::kInBackward) {
  current_.of_all = group_.c10d() != nullptr;
  if (options_.skip_all_reduce_unused_params()) {
    skipped_.emplace(parameters_, buckets_, observers_.comparison);
  }
  check_caps(options_);
  const auto trainable = add_parameters(state);
  observers_.progress.name(parameters_.front().key, parameters_.size());
  if (!group_.c10d()) {
    claim_hook();
    attach();
    return;
  }
  unfrozen_.manage(trainable);
  observers_.measured.start();
  claim_hook();
  attach();
  debug::announce_reducer(group_, name_, trainable.size(), buckets_.size());
}

ReducerImpl::~ReducerImpl() {
  detach();
  if (observers_.timeline_file) {
    observers_.timeline_file->write(); // where not all of its steps came
  }
}

/// Returns those that require a gradient.
std::vector<size_t> ReducerImpl::add_parameters(
    const detail::ManagedState& state) {
  std::vector<size_t> trainable;
  for (size_t i = 0; i < state.parameters.tensors.size(); ++i) {
    const auto& parameter = parameters_.emplace_back(
        state.parameters.tensors[i],
        state.parameters.names[i],
        state.sparse[i]);
    has_threads_ = has_threads_ || !parameter.device.is_cpu();
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

void ReducerImpl::step_in_backward(torch::optim::Optimizer& optimizer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_detached = !group_.c10d() && !looks_alone();
  observers_.step_in_backward.attach(optimizer, tensors(), group_);
  if (is_detached) {
    attach();
  }
}

/// Not from a Reducer that still uses it.
void ReducerImpl::claim_hook() {
  auto& hook = reduction_.hook();
  const auto* user = static_cast<ReducerImpl*>(hook.user_);
  DDP_CHECK_VALUE(
      !user || !user->is_of_use(),
      "the communication hook {} serves another Reducer already, and would "
      "mix the state of the two: make one for each, or destroy the other "
      "Reducer first",
      hook.describe());
  hook.user_ = this;
}

/// Frozen parameters get a hook too: they may be unfrozen.
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
  if (reduction_.hook().user_ == this) {
    reduction_.hook().user_ = nullptr;
  }
}

std::vector<at::Tensor> ReducerImpl::tensors() const {
  return buckets_.tensors();
}

std::vector<BucketIndices> ReducerImpl::bucket_indices() const {
  return buckets_.indices();
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
  sync_.forward_came();
}

void ReducerImpl::begin_no_sync() {
  const std::lock_guard<std::mutex> lock(mutex_);
  sync_.begin_no_sync();
}

void ReducerImpl::end_no_sync() {
  const std::lock_guard<std::mutex> lock(mutex_);
  sync_.end_no_sync();
  unfrozen_.find(); // also on a rank that had no backward
}

} // namespace ddp
