#include <ddp/internal/optimizer_shards.h>

#include <ddp/backends/capture.h>
#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>
#include <ddp/model/same_values.h>

#include <ATen/ATen.h>
#include <torch/optim/optimizer.h>

namespace ddp::detail {
namespace {

enum class GradientKind { kNone, kDense, kSparse };

GradientKind kind_of(const at::Tensor& gradient) {
  return !gradient.defined() ? GradientKind::kNone
      : gradient.is_sparse() ? GradientKind::kSparse
                             : GradientKind::kDense;
}

/// The highest rank of the group with inputs, which a `Join` over more ranks
/// does not know, and whether some ranks have none.
std::pair<int64_t, bool> last_with_inputs(
    const ProcessGroup& group,
    bool has_inputs) {
  const auto message = at::tensor(
      std::vector<int64_t>{has_inputs ? group.rank() : -1, !has_inputs});
  group.all_reduce(message, ReduceOp::kMax);
  const auto* result = message.const_data_ptr<int64_t>();
  return {result[0], result[1] == 1};
}

} // namespace

/// The ranks with inputs may have clipped or unscaled the means that the other
/// ranks have. Sparse gradients are not sent.
void OptimizerShards::share_gradients(
    torch::optim::Optimizer& optimizer,
    bool has_inputs) {
  const heartbeat::Activity activity("ZeroRedundancyOptimizer::step");
  const auto [root, some_have_none] = last_with_inputs(group_, has_inputs);
  if (root < 0 || !some_have_none) {
    return;
  }
  std::vector<double> numbers; // learning rates and kinds of gradients
  for (const auto& group : optimizer.param_groups()) {
    numbers.push_back(group.options().get_lr());
    for (const auto& parameter : group.params()) {
      numbers.push_back(static_cast<double>(kind_of(parameter.grad())));
    }
  }
  const auto message = at::tensor(numbers, at::kDouble);
  group_.broadcast(message, root);
  const auto* next = message.const_data_ptr<double>();
  std::vector<at::Tensor> gradients;
  for (auto& group : optimizer.param_groups()) {
    if (const double rate = *next++; rate != group.options().get_lr()) {
      group.options().set_lr(rate);
    }
    for (const auto& parameter : group.params()) {
      const auto kind = static_cast<GradientKind>(*next++);
      auto& gradient = parameter.mutable_grad();
      if (kind == GradientKind::kNone) {
        gradient.reset();
      } else if (kind == GradientKind::kDense) {
        if (kind_of(gradient) != kind) {
          gradient = at::zeros_like(parameter);
        }
        gradients.push_back(gradient);
      }
    }
  }
  broadcast_tensors(gradients, group_, root);
}

/// Warns in the first steps if gradients differ between ranks; parameters never
/// do, since their owners send them. In a `Join`, sparse gradients may differ.
/// A step that is captured into a CUDA graph compares nothing.
void OptimizerShards::compare_gradients(
    const torch::optim::Optimizer& optimizer) {
  if (comparisons_ == 0) {
    return;
  }
  NamedTensors gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (backends::is_capturing(parameter.device())) {
        return;
      }
      const auto& gradient = parameter.grad();
      gradients.append(
          "parameter " + std::to_string(gradients.names.size()),
          kind_of(gradient) == GradientKind::kSparse ? at::Tensor() : gradient);
    }
  }
  --comparisons_;
  const auto different = different_values(gradients, group_, "gradients");
  if (different.empty()) {
    return;
  }
  comparisons_ = 0;
  if (group_.rank() == 0) {
    TORCH_WARN(detail::format(
        "ddp: ZeroRedundancyOptimizer: {}\nEach parameter is trained with the "
        "gradient of one rank only. Does a Reducer average all of these "
        "parameters? Is a backward pass of each step outside no_sync(), and is "
        "the wrapper called, not its module? Are the parameters in the same "
        "order on all ranks? DDP_CHECK_REPLICAS=0 turns this check off",
        different));
  }
}

} // namespace ddp::detail
