#include <ddp/model_averaging.h>

#include <ddp/backends/capture.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

namespace ddp {
namespace {

/// The parameters that have a gradient on any rank: ranks with different values
/// may use different parameters.
std::vector<at::Tensor> with_gradients(
    const std::vector<at::Tensor>& parameters,
    const ProcessGroup& group) {
  auto has = at::zeros({static_cast<int64_t>(parameters.size())}, at::kByte);
  auto* const flags = has.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < parameters.size(); ++i) {
    flags[i] = parameters[i].grad().defined();
  }
  group.all_reduce(has, ReduceOp::kMax);
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (flags[i]) {
      result.push_back(parameters[i]);
    }
  }
  return result;
}

void average(
    const std::vector<at::Tensor>& parameters,
    const ProcessGroup& group) {
  std::vector<at::Tensor> flat;
  for (const auto& parameter : parameters) {
    flat.push_back(parameter.reshape({-1}));
  }
  auto mean = at::cat(flat); // of the widest type, if they differ
  mean.div_(group.size());
  group.all_reduce(mean);
  int64_t offset = 0;
  for (const auto& parameter : parameters) {
    const auto own = mean.narrow(0, offset, parameter.numel());
    at::Tensor(parameter).copy_(own.view(parameter.sizes()));
    offset += parameter.numel();
  }
}

void check(const HierarchicalModelAveragerOptions& options, int64_t ranks) {
  const auto& sizes = options.period_group_size();
  DDP_CHECK_VALUE(
      !sizes.empty(), "HierarchicalModelAverager: period_group_size is empty");
  for (const auto& [period, size] : sizes) {
    DDP_CHECK_VALUE(
        period >= 1 && size >= 1 && ranks % size == 0,
        "HierarchicalModelAverager: period {} averages groups of {} of {} "
        "ranks; the period must be positive, and the groups of equal size",
        period,
        size,
        ranks);
  }
  DDP_CHECK_VALUE(
      sizes.rbegin()->second == ranks,
      "HierarchicalModelAverager: the longest period is for {} ranks, "
      "expected all {}",
      sizes.rbegin()->second,
      ranks);
  DDP_CHECK_VALUE(
      options.warmup_steps() >= 0,
      "HierarchicalModelAverager: warmup_steps is {}, expected 0 or more",
      options.warmup_steps());
}

} // namespace

void ModelAverager::average_parameters(
    const std::vector<at::Tensor>& parameters) {
  const detail::heartbeat::Activity activity("average_parameters");
  const at::NoGradGuard no_grad;
  if (!parameters.empty()) {
    backends::check_not_capturing(
        parameters.front().device(),
        "average_parameters counts steps on the host: call it after each "
        "replay");
  }
  const auto* const group = group_in(step_++);
  if (!group || group->size() == 1) {
    return;
  }
  auto left = with_gradients(parameters, *group);
  while (!left.empty()) { // one device after another
    const auto device = left.front().device();
    const auto rest = std::stable_partition(
        left.begin(), left.end(), [&](const at::Tensor& parameter) {
          return parameter.device() == device;
        });
    average({left.begin(), rest}, *group);
    left.erase(left.begin(), rest);
  }
}

void ModelAverager::average_parameters(
    const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(
        parameters.end(), group.params().begin(), group.params().end());
  }
  average_parameters(parameters);
}

c10::IValue ModelAverager::state_dict() const {
  return step_;
}

void ModelAverager::load_state_dict(const c10::IValue& state) {
  plan_state_dict(state)();
}

std::function<void()> ModelAverager::plan_state_dict(const c10::IValue& state) {
  DDP_CHECK_VALUE(
      state.isInt() && state.toInt() >= 0,
      "ModelAverager: the state was not saved by a ModelAverager");
  return [this, step = state.toInt()] { step_ = step; };
}

PeriodicModelAverager::PeriodicModelAverager(
    const ProcessGroup& group,
    const PeriodicModelAveragerOptions& options)
    : group_(group), options_(options) {
  DDP_CHECK_VALUE(
      options.period() >= 1,
      "PeriodicModelAverager: period is {}, expected 1 or more",
      options.period());
  DDP_CHECK_VALUE(
      options.warmup_steps() >= 0,
      "PeriodicModelAverager: warmup_steps is {}, expected 0 or more",
      options.warmup_steps());
}

const ProcessGroup* PeriodicModelAverager::group_in(int64_t step) const {
  const auto since = step - options_.warmup_steps();
  return since >= 0 && since % options_.period() == 0 ? &group_ : nullptr;
}

HierarchicalModelAverager::HierarchicalModelAverager(
    const ProcessGroup& group,
    const HierarchicalModelAveragerOptions& options)
    : warmup_steps_(options.warmup_steps()) {
  check(options, group.size());
  for (const auto& [period, size] : options.period_group_size()) {
    groups_.emplace(
        period,
        size == group.size() ? group : group.split(group.rank() / size));
  }
}

const ProcessGroup* HierarchicalModelAverager::group_in(int64_t step) const {
  if (step < warmup_steps_) {
    return nullptr;
  }
  for (auto entry = groups_.rbegin(); entry != groups_.rend(); ++entry) {
    if (step % entry->first == 0) {
      return &entry->second;
    }
  }
  return nullptr;
}

} // namespace ddp
