#include <ddp/reducer/core/unused_parameters.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/process_group/collective_wait.h>
#include <ddp/support/current_stream.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

namespace ddp::detail {
namespace {

/// A GPU's reduction counts as complete once it is queued.
void wait_on_host(const std::vector<Bucket>& buckets) {
  std::set<std::pair<c10::DeviceType, c10::DeviceIndex>> done;
  for (const auto& bucket : buckets) {
    const auto device = bucket.content.buffer.device();
    if (!device.is_cpu() &&
        done.insert({device.type(), device.index()}).second) {
      current_stream(device).synchronize();
    }
  }
}

} // namespace

UnusedParameters::UnusedParameters(
    std::vector<ParameterState>& parameters,
    BucketStorage& buckets,
    GradientReduction& reduction,
    const ProcessGroup& group,
    const c10::intrusive_ptr<c10d::Store>& store,
    bool kept_together)
    : parameters_(parameters),
      buckets_(buckets),
      reduction_(reduction),
      group_(group),
      agreement_(store, group.size(), group.timeout(), kept_together),
      has_sparse_(
          std::any_of(parameters.begin(), parameters.end(), [](auto& each) {
            return each.sparse;
          })) {}

std::vector<size_t> UnusedParameters::find_unused(
    const GradientListener& listener) {
  std::vector<size_t> unused;
  if (reduction_.all_launched() && !has_sparse_) {
    return unused;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    // A gradient that accumulated in earlier backward passes may have been
    // reset.
    parameter.used = parameter.used && parameter.tensor.grad().defined();
    if (!parameter.trainable || parameter.used ||
        parameter.grad_state != GradState::kPending) {
      continue;
    }
    DDP_CHECK(
        gradient_listener(parameter.tensor) == &listener,
        "the hook on {} was removed, so its gradients are not averaged: "
        "construct the Reducer after any code that replaces "
        "post-accumulate-grad hooks",
        parameter.name());
    unused.push_back(i);
  }
  return unused;
}

void UnusedParameters::restore(const Reduction& reduction) {
  if (reduction.unused.empty()) {
    return;
  }
  const at::NoGradGuard no_grad;
  for (const size_t index : of_all_ranks(reduction.unused)) {
    reduction_.restore(parameters_[index]);
  }
}

/// Once all ranks have started their collectives, the step's count is final.
std::vector<size_t> UnusedParameters::of_all_ranks(
    const std::vector<size_t>& unused) {
  wait_on_host(buckets_.all());
  check_usable(ProcessGroupImpl::of(group_), kReduction);
  if (!agreement_.concerns_all()) {
    return {};
  }
  const heartbeat::Activity activity(
      "backward: agreement on unused parameters");
  auto missing =
      at::zeros({static_cast<int64_t>(parameters_.size())}, at::kByte);
  for (const size_t index : unused) {
    missing.mutable_data_ptr<uint8_t>()[index] = 1;
  }
  group_.all_reduce(missing, ReduceOp::kMin);
  std::vector<size_t> result;
  for (const size_t index : unused) {
    if (missing.const_data_ptr<uint8_t>()[index] == 1) {
      result.push_back(index);
    }
  }
  return result;
}

} // namespace ddp::detail
