#include <ddp/reducer/reducer_impl.h>

#include <ddp/debug/backend_wrapper.h>
#include <ddp/internal/check.h>

#include <ddp/process_group/process_group_impl.h>
#include <ddp/reducer/buckets/bucket_layout.h>
#include <ddp/reducer/buckets/conflicts.h>

#include <c10/util/Type.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <typeinfo>

namespace ddp {
namespace {

std::string next_name(const ProcessGroup& group) {
  auto& impl = detail::ProcessGroupImpl::of(group);
  return c10::str(impl.scope, "/reducer_", impl.reducers++);
}

c10::intrusive_ptr<c10d::Store> own_store(
    const ProcessGroup& group,
    const std::string& name) {
  const auto store = group.store();
  return store ? c10::make_intrusive<c10d::PrefixStore>(name, store) : nullptr;
}

std::vector<detail::ParameterState> states_of(
    const detail::TargetState& state) {
  std::vector<detail::ParameterState> result;
  for (size_t i = 0; i < state.parameters.tensors.size(); ++i) {
    result.emplace_back(
        state.parameters.tensors[i],
        state.parameters.names[i],
        state.sparse[i]);
  }
  return result;
}

} // namespace

ReducerImpl::ReducerImpl(
    const detail::TargetState& state,
    ProcessGroup own_group,
    ReducerOptions own_options,
    SyncDecision decision)
    : group(std::move(own_group)),
      name(next_name(group)),
      options(std::move(own_options)),
      parameters(states_of(state)),
      buckets(parameters, group),
      reduction(parameters, buckets, group, options, observers.list),
      rebuild(options, buckets, group),
      store(own_store(group, name)),
      observers(
          state,
          options,
          group,
          decision == SyncDecision::kInBackward && options.broadcast_buffers(),
          name,
          store,
          parameters,
          buckets,
          rebuild,
          reduction),
      synchronization(group.c10d() ? decision : SyncDecision::kInBackward),
      backward(
          name,
          group,
          options,
          store,
          parameters,
          buckets,
          reduction,
          rebuild,
          observers.comparison,
          synchronization,
          observers.list) {
  check_caps(options);
  detail::check_no_conflict(
      detail::Feature::kDivergenceCheck,
      detail::Feature::kLocalHook,
      options.check_divergence_every() > 0 && group.size() > 1 &&
          !reduction.hook().keeps_ranks_equal());
  const auto trainable = trainable_parameters();
  observers.progress.name(parameters.front().key, parameters.size());
  if (!group.c10d()) {
    lone_backward.emplace(
        name,
        parameters,
        synchronization,
        observers.list,
        /*looks_always=*/options.check_finite());
  }
  hook_user_ = {std::make_shared<char>(), &listener()};
  claim(reduction.hook(), group);
  if (lone_backward) {
    return;
  }
  observers.list.add(participation);
  backward.unfrozen().make_trainable(trainable);
  observers.measured.start();
  debug::log_reducer(group, name, trainable.size(), buckets.size());
}

ReducerImpl::~ReducerImpl() {
  detach();
  if (observers.timeline_file) {
    observers.timeline_file->write(); // if some of its steps did not run
  }
}

std::vector<size_t> ReducerImpl::trainable_parameters() const {
  std::vector<size_t> trainable;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].tensor.requires_grad()) {
      trainable.push_back(i);
    }
  }
  DDP_CHECK_VALUE(
      !trainable.empty(),
      "no parameter requires a gradient, so nothing can be reduced. Construct "
      "the Reducer after the parameters, do not freeze all of them, and keep "
      "modules in torch::nn::ModuleList, not in a plain std::vector");
  return trainable;
}

detail::GradientListener& ReducerImpl::listener() {
  return lone_backward ? static_cast<detail::GradientListener&>(*lone_backward)
                       : backward;
}

/// Makes this the user of the hook and of those inside it, and connects them
/// for calls with `its_group`. Throws if another Reducer still uses one of
/// them.
void ReducerImpl::claim(CommHook& hook, const ProcessGroup& its_group) {
  const auto user =
      std::static_pointer_cast<detail::GradientListener>(hook.user_.lock());
  DDP_CHECK_VALUE(
      user != hook_user_,
      "the communication hook {} occurs twice in the hook of one Reducer, and "
      "would mix the states of both places: create one hook for each place",
      hook.describe());
  DDP_CHECK_VALUE(
      !user || !user->is_of_use(),
      "the communication hook {} already belongs to another Reducer, and would "
      "mix the states of both Reducers: create one hook for each Reducer, or "
      "destroy the other Reducer first",
      hook.describe());
  hook.user_ = hook_user_;
  const auto inner_group = hook.connect(its_group);
  for (const auto& inner : hook.inner_hooks()) {
    claim(*inner, inner_group);
  }
}

void ReducerImpl::attach() {
  backward.set_owner(weak_from_this());
  if (lone_backward) {
    lone_backward->set_owner(weak_from_this());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& parameter = parameters[i];
    const auto* other = detail::gradient_listener(parameter.tensor);
    while (other && !other->is_of_use()) {
      detail::remove_gradient_hook(parameter.tensor, *other);
      other = detail::gradient_listener(parameter.tensor);
    }
    if (other) {
      detach();
    }
    DDP_CHECK_VALUE(
        !other,
        "the parameter {} already belongs to another Reducer: destroy that "
        "Reducer first, or pass the remaining parameters to this one",
        parameter.key);
    detail::add_gradient_hook(parameter.tensor, listener(), i);
    versions_at_start_ += parameter.tensor._version();
  }
}

void ReducerImpl::detach() {
  for (const auto& parameter : parameters) {
    detail::remove_gradient_hook(parameter.tensor, listener());
  }
  hook_user_.reset(); // another Reducer may have the hooks
}

bool ReducerImpl::is_frozen() const {
  return std::none_of(
      parameters.begin(), parameters.end(), [](auto& parameter) {
        return parameter.tensor.requires_grad();
      });
}

void ReducerImpl::anchor(const detail::OutputAnchors& outputs) {
  if (lone_backward) {
    return;
  }
  if (is_frozen()) {
    if (observers.leaf_report) {
      observers.leaf_report->on_frozen_forward([this] {
        return observers.module.added(
            options.known_leaves(), /*trained=*/false);
      });
    }
    return;
  }
  outputs.attach(
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
          self->backward.reach_output();
        }
      },
      [this](const at::Tensor& leaf) {
        return detail::gradient_listener(leaf) == &backward;
      });
  synchronization.forward_came(true);
}

void ReducerImpl::step_in_backward(torch::optim::Optimizer& optimizer) {
  observers.step_in_backward.attach(optimizer, group);
  if (!lone_backward) {
    return;
  }
  const bool had_hooks = lone_backward->has_hooks();
  lone_backward->stay();
  if (!had_hooks) {
    attach();
  }
}

Joinable& ReducerImpl::joinable() {
  detail::check_no_conflict(
      detail::Feature::kJoin,
      detail::Feature::kSkipUnused,
      options.skip_all_reduce_unused_params());
  return participation;
}

Statistics ReducerImpl::statistics() const {
  Statistics result;
  observers.recorder.describe(result);
  result.iteration = backward.steps();
  const auto& hook = reduction.hook();
  result.comm_hook = c10::demangle(typeid(hook).name());
  for (const auto& parameter : parameters) {
    if (parameter.trainable) {
      ++result.num_parameter_tensors;
      result.total_parameter_size_bytes +=
          static_cast<int64_t>(parameter.tensor.nbytes());
    }
  }
  result.has_rebuilt_buckets = buckets.is_rebuilt();
  result.bucket_sizes =
      buckets.is_rebuilt() ? buckets.first_sizes() : buckets.sizes();
  if (buckets.is_rebuilt()) {
    result.rebuilt_bucket_sizes = buckets.sizes();
    result.rebuilt_per_bucket_param_indices = buckets.indices();
  }
  return result;
}

} // namespace ddp
