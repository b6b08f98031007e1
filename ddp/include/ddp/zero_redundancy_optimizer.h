#pragma once

#include <ATen/core/ivalue.h>
#include <ddp/internal/optimizer_shards.h>
#include <ddp/join.h>
#include <ddp/process_group.h>
#include <torch/arg.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <type_traits>
#include <utility>

namespace ddp {

/// Options of `ZeroRedundancyOptimizer`, by Python's names and defaults.
struct ZeroRedundancyOptions {
  /// Whether parameters become slices of one buffer for each rank, dtype and
  /// device, which is sent as it is. Without it they are copied into messages
  /// and out again in each step. What refers to a parameter's old memory, such
  /// as a view of it, does not follow.
  TORCH_ARG(bool, parameters_as_bucket_view) = false;
};

/// Any optimizer of LibTorch's that treats each parameter by itself, with its
/// state shared out over ranks:
///
///     ddp::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
///         net->parameters(), group, torch::optim::AdamOptions(1e-3));
///
/// Each parameter belongs to one rank, by size, the largest first, each to the
/// rank that has least. A rank's `step` updates its own parameters and gives
/// all ranks all values, so that moments take a rank's share of the memory. The
/// bits are those of the optimizer itself where gradients are equal on all
/// ranks, as after a backward with a `Reducer`.
///
/// It is an `Optimizer`: learning rates, schedulers, `zero_grad()` and added
/// groups work as ever, alike on all ranks. `state()` has what belongs to this
/// rank. `TrainingState` and `CheckpointManager` save and load it as they do
/// the optimizer itself, on any number of ranks, sharded or not.
/// `Reducer::step_in_backward` and `ElasticRun::sync` refuse it. In a `Join`
/// ranks without inputs step along. Source: the sharing is that of
/// torch/distributed/optim/zero_redundancy_optimizer.py.
template <typename Optimizer>
class ZeroRedundancyOptimizer final : public Optimizer, public Joinable {
  static_assert(
      std::is_base_of_v<torch::optim::Optimizer, Optimizer> &&
          !std::is_base_of_v<torch::optim::LBFGS, Optimizer>,
      "an optimizer that treats each parameter by itself");

 public:
  /// `parameters`: a vector of tensors or of `OptimizerParamGroup`s, the same
  /// on all ranks. Not collective; `step` uses `group`.
  template <typename Parameters>
  ZeroRedundancyOptimizer(Parameters parameters, const ProcessGroup& group)
      : Optimizer(std::move(parameters)), shards_(group, false) {
    shards_.assign(*this);
  }
  template <typename Parameters, typename Options>
  ZeroRedundancyOptimizer(
      Parameters parameters,
      const ProcessGroup& group,
      const Options& options,
      const ZeroRedundancyOptions& zero = {})
      : Optimizer(std::move(parameters), options),
        shards_(group, zero.parameters_as_bucket_view()) {
    shards_.assign(*this);
  }

  /// Calls `closure`, which may communicate, updates this rank's parameters,
  /// and gives all ranks all values. Throws what `Optimizer::step` and
  /// collectives do; on the other ranks too if one cannot update its own.
  /// Collective.
  at::Tensor step(
      torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) { // as every optimizer does first: it sees all parameters
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    notify_join_context();
    step_all();
    return loss;
  }

  /// The whole state as `optimizer_state` returns it for the optimizer itself,
  /// on the CPU, on rank `to`; on the others their own part. Each rank's part
  /// is in every rank's memory for a moment. Collective.
  c10::IValue state_dict(int64_t to = 0) {
    return shards_.state_dict(*this, to);
  }

  /// This rank's part alone, for a file of its own: no rank holds the whole.
  /// Tensors are those of the optimizer, not copies. Not collective.
  c10::IValue local_state_dict() {
    return shards_.local_state_dict(*this);
  }

  /// Keeps this rank's part of such a state, or of the optimizer's own; throws
  /// as `load_optimizer_state` does, and `c10::ValueError` if a part is another
  /// rank's, or of another number of ranks. Not collective.
  void load_state_dict(const c10::IValue& state) {
    plan_state_dict(state)();
  }

  /// Checks a state; what it returns loads it.
  std::function<void()> plan_state_dict(const c10::IValue& state) {
    shards_.assign(*this); // groups may have been added
    return shards_.plan_state_dict(*this, state);
  }

 protected:
  void main_hook(const JoinStep& /*step*/) override {
    step_all();
  }

 private:
  void step_all() {
    shards_.step_own(*this, [this] { Optimizer::step(); });
    shards_.exchange();
  }

  detail::OptimizerShards shards_;
};

} // namespace ddp
