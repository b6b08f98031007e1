#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp::detail {

/// Assigns an optimizer's parameters to ranks, which update them, and sends the
/// new values to all ranks.
class DDP_API OptimizerShards {
 public:
  /// If `views` is true, parameters become slices of the messages.
  OptimizerShards(ProcessGroup group, bool views);

  /// Assigns to ranks the parameters that were added to the optimizer since the
  /// last call. Drops the state of other ranks' parameters, since Adagrad
  /// creates state at construction.
  void assign(torch::optim::Optimizer& optimizer);

  /// In a `Join`, gives all ranks the dense gradients and the learning rates of
  /// the last rank with inputs, if some ranks have none. Collective.
  void share_gradients(torch::optim::Optimizer& optimizer, bool has_inputs);

  /// Calls `assign`, and then `step` while the optimizer has only this rank's
  /// parameters. If either throws, the other ranks' waits also throw. The first
  /// calls warn if gradients differ between ranks. Collective.
  void step_own(
      torch::optim::Optimizer& optimizer,
      const std::function<void()>& step);

  /// Sends each rank's parameters to all ranks. Throws `c10::ValueError` if the
  /// strides of a parameter that became a slice differ between ranks.
  /// Collective.
  void exchange();

  /// See `ZeroRedundancyOptimizer`. Calls `assign`.
  c10::IValue state_dict(torch::optim::Optimizer& optimizer, int64_t to);
  c10::IValue local_state_dict(torch::optim::Optimizer& optimizer);
  std::function<void()> plan_state_dict(
      torch::optim::Optimizer& optimizer,
      const c10::IValue& state) const;

 private:
  /// One rank's parameters of one dtype and device, in one buffer.
  struct Flat {
    int64_t owner;
    at::Tensor buffer;
    std::vector<at::Tensor> parameters;
  };

  void assign_group(size_t group, torch::optim::Optimizer& optimizer);
  void compare(const torch::optim::Optimizer& optimizer);
  void compare_gradients(const torch::optim::Optimizer& optimizer);
  void lay_out(int64_t owner, const std::vector<at::Tensor>& parameters);
  void verify_layout();
  void exchange_views();
  std::vector<int64_t> shard() const;
  c10::IValue own_part(const c10::IValue& state) const;

  ProcessGroup group_;
  bool views_;
  /// The number of later steps that will compare the ranks' gradients.
  int comparisons_;
  /// The number of elements assigned to each rank so far.
  std::vector<int64_t> loads_;
  /// The owner of each parameter, by parameter group.
  std::vector<std::vector<int64_t>> owners_;
  /// Each rank's parameters.
  std::vector<std::vector<at::Tensor>> parameters_;
  std::vector<Flat> flats_;
  /// Whether these parameters are known to be the same on all ranks.
  bool verified_ = false;
  /// Whether the ranks have compared the lists of all parameters.
  bool compared_ = false;
};

} // namespace ddp::detail
