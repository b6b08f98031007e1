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

/// Options of `ZeroRedundancyOptimizer`, with Python's names and defaults.
struct ZeroRedundancyOptions {
  /// Whether parameters become slices of one buffer per rank, parameter group,
  /// dtype and device, which is sent directly. Otherwise, each step copies the
  /// parameters into messages and back. Existing views of a parameter keep the
  /// old memory.
  TORCH_ARG(bool, parameters_as_bucket_view) = false;
};

/// Any LibTorch optimizer that updates each parameter separately, with its
/// state sharded across ranks:
///
///     ddp::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
///         net->parameters(), group, torch::optim::AdamOptions(1e-3));
///
/// Each parameter belongs to one rank. The largest parameters are assigned
/// first, each to the rank with the fewest elements. `step` updates this rank's
/// parameters, and sends their values to all ranks. A rank thus stores only its
/// shard of the state. All parameters are sent in each step: pass only those
/// that are trained. Results are bit-identical to the unsharded optimizer's if
/// gradients are equal on all ranks, as after a backward pass with a `Reducer`.
/// If dense gradients differ in the first three steps, rank 0 warns.
///
/// The class is an `Optimizer`: learning rates, schedulers, `zero_grad()` and
/// added groups work as usual, but must be the same on all ranks. `state()`
/// contains only this rank's part. `TrainingState` and `CheckpointManager` save
/// the whole state, which can be loaded on any number of ranks, sharded or not.
/// `Reducer::step_in_backward` and `ElasticRun::sync` reject this optimizer. In
/// a `Join`, ranks without inputs also step. All ranks then step with the dense
/// gradients and the learning rates of the highest rank that has inputs, which
/// may have clipped the gradients. Source of the assignment:
/// torch/distributed/optim/zero_redundancy_optimizer.py.
template <typename Optimizer>
class ZeroRedundancyOptimizer final : public Optimizer, public Joinable {
  static_assert(
      std::is_base_of_v<torch::optim::Optimizer, Optimizer> &&
          !std::is_base_of_v<torch::optim::LBFGS, Optimizer>,
      "the optimizer must update each parameter separately");

 public:
  /// `parameters` is a vector of tensors or of `OptimizerParamGroup`s, the same
  /// on all ranks. Not collective; `step` uses `group`.
  template <typename Parameters>
  ZeroRedundancyOptimizer(Parameters parameters, const ProcessGroup& group)
      : Optimizer(std::move(parameters)), shards_(group, false) {
    shards_.assign(*this);
  }
  /// As above, with options of the optimizer and of the sharding.
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
  /// and sends their values to all ranks. Throws as `Optimizer::step` and
  /// collectives do; if one rank cannot update its parameters, all ranks throw.
  /// Collective.
  at::Tensor step(
      torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) { // first, while the optimizer has all parameters
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    if (notify_join_context()) {
      shards_.share_gradients(*this, true);
    }
    step_all();
    return loss;
  }

  /// On rank `to`, returns a copy of the whole state on the CPU, in the form of
  /// `optimizer_state` for the unsharded optimizer. On other ranks, returns
  /// that rank's part, which shares the optimizer's tensors. Every rank briefly
  /// holds each part. Collective. Throws if `to` is not a rank.
  c10::IValue state_dict(int64_t to = 0) {
    return shards_.state_dict(*this, to);
  }

  /// Returns only this rank's part, to write one file per rank; no rank then
  /// holds the whole state. The result shares the optimizer's tensors. Not
  /// collective.
  c10::IValue local_state_dict() {
    return shards_.local_state_dict(*this);
  }

  /// Loads this rank's part of a state that one of the functions above or an
  /// unsharded optimizer returned. Throws as `load_optimizer_state` does, and
  /// `c10::ValueError` if a part is from a different rank, or from ranks among
  /// which the parameters were divided differently. Not collective.
  void load_state_dict(const c10::IValue& state) {
    plan_state_dict(state)();
  }

  /// Checks a state, and returns a function that loads it.
  std::function<void()> plan_state_dict(const c10::IValue& state) {
    shards_.assign(*this); // groups may have been added
    return shards_.plan_state_dict(*this, state);
  }

 protected:
  void main_hook(const JoinStep& /*step*/) override {
    shards_.share_gradients(*this, false);
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
