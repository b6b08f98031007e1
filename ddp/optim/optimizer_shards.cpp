#include <ddp/internal/optimizer_shards.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/module_state.h>
#include <ddp/optim/optimizer_plan.h>
#include <ddp/optimizers.h>
#include <ddp/process_group/agreement/on_rank_0.h>
#include <ddp/process_group/agreement/same_on_all.h>
#include <ddp/process_group/async_broadcast.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/reducer/observers/partial_step.h>
#include <ddp/support/containers.h>
#include <ddp/support/error_text.h>
#include <ddp/support/optimizer_text.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace ddp::detail {
namespace {

using c10::IValue;
using c10::impl::GenericDict;

/// States by the number of their parameter, on the CPU, and in separate memory
/// if `copy` is true.
GenericDict on_cpu(const GenericDict& states, bool copy) {
  auto result = new_dict();
  for (const auto& item : states) {
    auto fields = new_dict();
    for (const auto& field : item.value().toGenericDict()) {
      const auto& value = field.value();
      fields.insert(
          field.key(),
          value.isTensor()
              ? value.toTensor().to(at::kCPU, /*non_blocking=*/false, copy)
              : value);
    }
    result.insert(item.key(), fields);
  }
  return result;
}

std::string to_message(const GenericDict& states) {
  const auto bytes = torch::jit::pickle_save(on_cpu(states, /*copy=*/false));
  return {bytes.begin(), bytes.end()};
}

GenericDict from_message(const std::string& message) {
  return torch::jit::pickle_load({message.begin(), message.end()})
      .toGenericDict();
}

/// Whether a list has these numbers.
bool are(const IValue& list, const std::vector<int64_t>& numbers) {
  const auto is = [](const IValue& value, int64_t number) {
    return value.isInt() && value.toInt() == number;
  };
  return list.isList() &&
      std::equal(
             list.toListRef().begin(),
             list.toListRef().end(),
             numbers.begin(),
             numbers.end(),
             is);
}

/// An optimizer's state with the values `states`.
IValue with_states(const GenericDict& state, const GenericDict& states) {
  auto result = new_dict();
  result.insert("state", states);
  result.insert("param_groups", state.at("param_groups"));
  return result;
}

} // namespace

OptimizerShards::OptimizerShards(ProcessGroup group, bool views)
    : group_(std::move(group)),
      views_(views),
      comparisons_(ProcessGroupImpl::of(group_).checks_replicas ? 3 : 0),
      loads_(static_cast<size_t>(group_.size())),
      parameters_(static_cast<size_t>(group_.size())) {}

void OptimizerShards::assign(torch::optim::Optimizer& optimizer) {
  owners_.resize(optimizer.param_groups().size());
  for (size_t i = 0; i < owners_.size(); ++i) {
    assign_group(i, optimizer);
  }
}

/// Assigns the largest parameters first, each to the rank with the fewest
/// elements. A parameter that is listed several times has one owner.
void OptimizerShards::assign_group(
    size_t group,
    torch::optim::Optimizer& optimizer) {
  const auto& parameters = optimizer.param_groups()[group].params();
  auto& owners = owners_[group];
  const size_t known = owners.size();
  DDP_CHECK(
      parameters.size() >= known,
      "ZeroRedundancyOptimizer: parameters were removed from group {}",
      group);
  if (parameters.size() == known) {
    return;
  }
  compared_ = false;
  owners.resize(parameters.size());
  std::vector<size_t> order(parameters.size() - known);
  std::iota(order.begin(), order.end(), known);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return parameters[a].numel() > parameters[b].numel();
  });
  std::unordered_map<const c10::TensorImpl*, int64_t> owner_of;
  for (size_t rank = 0; rank < parameters_.size(); ++rank) {
    for (const auto& parameter : parameters_[rank]) {
      owner_of[parameter.unsafeGetTensorImpl()] = static_cast<int64_t>(rank);
    }
  }
  std::vector<std::vector<at::Tensor>> added(parameters_.size());
  for (const size_t index : order) {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    auto* const parameter = parameters[index].unsafeGetTensorImpl();
    const auto [known_owner, is_new] =
        owner_of.emplace(parameter, least - loads_.begin());
    const auto owner = known_owner->second;
    owners[index] = owner;
    if (!is_new) {
      continue;
    }
    *least += parameters[index].numel();
    added[static_cast<size_t>(owner)].push_back(parameters[index]);
    if (owner != group_.rank()) {
      optimizer.state().erase(parameter);
    }
  }
  for (size_t rank = 0; rank < added.size(); ++rank) {
    auto& all = parameters_[rank];
    all.insert(all.end(), added[rank].begin(), added[rank].end());
    if (views_) {
      lay_out(static_cast<int64_t>(rank), added[rank]);
    }
  }
}

/// Makes parameters slices of one buffer for each dtype and device.
void OptimizerShards::lay_out(
    int64_t owner,
    const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  std::map<std::pair<at::ScalarType, std::string>, std::vector<at::Tensor>>
      kinds;
  for (const auto& parameter : parameters) {
    kinds[{parameter.scalar_type(), parameter.device().str()}].push_back(
        parameter);
  }
  for (auto& [kind, tensors] : kinds) {
    std::vector<at::Tensor> parts;
    for (const auto& tensor : tensors) {
      // In memory order, so that the slice keeps the strides.
      parts.push_back(
          tensor.is_non_overlapping_and_dense()
              ? tensor.detach().as_strided({tensor.numel()}, {1})
              : tensor.detach().reshape({-1}));
    }
    const auto buffer = at::cat(parts);
    int64_t offset = 0;
    for (auto& tensor : tensors) {
      tensor.set_data(
          tensor.is_non_overlapping_and_dense()
              ? buffer.as_strided(tensor.sizes(), tensor.strides(), offset)
              : buffer.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
    flats_.push_back({owner, buffer, std::move(tensors)});
  }
  verified_ = false;
}

/// Compares the ranks' parameters if some were added: owners depend on their
/// order.
void OptimizerShards::compare(const torch::optim::Optimizer& optimizer) {
  if (!std::exchange(compared_, true)) {
    check_same_on_all(
        group_, "ZeroRedundancyOptimizer", describe_with_parameters(optimizer));
  }
}

void OptimizerShards::step_own(
    torch::optim::Optimizer& optimizer,
    const std::function<void()>& step) {
  const detail::heartbeat::Activity activity("ZeroRedundancyOptimizer::step");
  try {
    assign(optimizer);
    compare(optimizer);
    compare_gradients(optimizer);
    PartialStep(optimizer, step)
        .step(parameters_[static_cast<size_t>(group_.rank())]);
  } catch (const std::exception& error) {
    report_failure(group_, error_text(error));
    throw;
  }
}

void OptimizerShards::exchange() {
  const detail::heartbeat::Activity activity("ZeroRedundancyOptimizer::step");
  if (!group_.c10d()) {
    return;
  }
  if (views_) {
    exchange_views();
    return;
  }
  AsyncBroadcast last; // two at a time: each copies a rank's parameters
  for (size_t rank = 0; rank < parameters_.size(); ++rank) {
    AsyncBroadcast next;
    next.start(parameters_[rank], group_, static_cast<int64_t>(rank));
    last.finish();
    last = std::move(next);
  }
  last.finish();
}

/// Buffers are sent in memory order, which must be the same on all ranks.
void OptimizerShards::verify_layout() {
  NamedTensors all;
  for (const auto& flat : flats_) {
    for (const auto& parameter : flat.parameters) {
      all.append(
          "parameter " + std::to_string(all.names.size()) + " of rank " +
              std::to_string(flat.owner),
          parameter);
    }
  }
  verify_same_model(all, "", group_);
  verified_ = true;
}

void OptimizerShards::exchange_views() {
  if (!verified_) {
    verify_layout();
  }
  std::vector<Work> works;
  for (const auto& flat : flats_) {
    for (const auto& parameter : flat.parameters) {
      DDP_CHECK(
          parameter.is_alias_of(flat.buffer),
          "ZeroRedundancyOptimizer: a parameter ({}) was moved or replaced "
          "after the optimizer was constructed with parameters_as_bucket_view",
          parameter.sizes());
    }
    works.push_back(group_.broadcast_async(flat.buffer, flat.owner));
  }
  for (auto& work : works) {
    work.wait();
  }
}

c10::IValue OptimizerShards::state_dict(
    torch::optim::Optimizer& optimizer,
    int64_t to) {
  const detail::heartbeat::Activity activity(
      "ZeroRedundancyOptimizer::state_dict");
  DDP_CHECK_VALUE(
      to >= 0 && to < group_.size(),
      "ZeroRedundancyOptimizer::state_dict: {} is not a rank of a group of {}",
      to,
      group_.size());
  auto own = new_dict();
  std::string message;
  // No rank may fail while the others communicate.
  on_each_rank("ZeroRedundancyOptimizer::state_dict", group_, [&] {
    assign(optimizer);
    own = own_part(optimizer_state(optimizer)).toGenericDict();
    const auto states = own.at("state").toGenericDict();
    if (group_.rank() == to) {
      own.insert_or_assign("state", on_cpu(states, /*copy=*/true));
    } else {
      message = to_message(states);
    }
  });
  std::vector<std::string> messages;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (rank == to) {
      continue;
    }
    auto sent = group_.broadcast(rank == group_.rank() ? message : "", rank);
    if (group_.rank() == to) {
      messages.push_back(std::move(sent));
    }
  }
  std::map<int64_t, IValue> all; // in the order of parameters
  const auto add = [&all](const GenericDict& states) {
    for (const auto& item : states) {
      all.emplace(item.key().toInt(), item.value());
    }
  };
  add(own.at("state").toGenericDict());
  for (auto& received : messages) {
    add(from_message(std::exchange(received, "")));
  }
  auto states = new_dict();
  for (auto& [index, state] : all) {
    states.insert(index, std::move(state));
  }
  const auto result = with_states(own, states).toGenericDict();
  if (group_.rank() != to) {
    result.insert(kShard, shard()); // which nobody may take for the whole
  }
  return result;
}

c10::IValue OptimizerShards::local_state_dict(
    torch::optim::Optimizer& optimizer) {
  assign(optimizer);
  const auto part = own_part(optimizer_state(optimizer)).toGenericDict();
  part.insert(kShard, shard());
  return part;
}

std::function<void()> OptimizerShards::plan_state_dict(
    torch::optim::Optimizer& optimizer,
    const c10::IValue& state) const {
  return plan_optimizer_state(optimizer, own_part(state));
}

/// This rank, and the owner of each parameter of all groups.
std::vector<int64_t> OptimizerShards::shard() const {
  std::vector<int64_t> shard{group_.rank()};
  for (const auto& owners : owners_) {
    shard.insert(shard.end(), owners.begin(), owners.end());
  }
  return shard;
}

/// The part of this rank's parameters: `load_optimizer_state` and `torch::load`
/// give the optimizer the states of all parameters. Returns other values
/// unchanged: the reader rejects them.
IValue OptimizerShards::own_part(const IValue& state) const {
  if (!state.isGenericDict()) {
    return state;
  }
  const auto dict = state.toGenericDict();
  const auto states = dict.find("state");
  const auto groups = dict.find("param_groups");
  if (states == dict.end() || groups == dict.end() ||
      !states->value().isGenericDict() || !groups->value().isList()) {
    return state;
  }
  const auto saved = dict.find(kShard);
  DDP_CHECK_VALUE(
      saved == dict.end() || are(saved->value(), shard()),
      "ZeroRedundancyOptimizer: the state is one rank's part, and was not "
      "saved by rank {} of {} with the same parameters. Each rank must load "
      "its own part, on the same number of ranks; `state_dict()` returns the "
      "whole state, for any number of ranks",
      group_.rank(),
      group_.size());
  auto own = new_dict();
  const auto& saved_groups = groups->value().toListRef();
  for (size_t i = 0; i < std::min(saved_groups.size(), owners_.size()); ++i) {
    const auto numbers = saved_groups[i].toGenericDict().at("params");
    for (size_t j = 0; j < numbers.toListRef().size(); ++j) {
      const auto& number = numbers.toListRef()[j];
      const auto found = states->value().toGenericDict().find(number);
      if (found != states->value().toGenericDict().end() &&
          j < owners_[i].size() && owners_[i][j] == group_.rank()) {
        own.insert(number, found->value());
      }
    }
  }
  return with_states(dict, own);
}

} // namespace ddp::detail
