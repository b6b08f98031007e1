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

/// Which rank updates which parameter of an optimizer, and how the others get
/// the values.
class DDP_API OptimizerShards {
 public:
  /// `views`: parameters become slices of the messages.
  OptimizerShards(ProcessGroup group, bool views);

  /// Assigns parameters added to the optimizer since the last call to ranks,
  /// and drops the others' state, which Adagrad creates immediately.
  void assign(torch::optim::Optimizer& optimizer);

  /// Calls `assign`, and `step` while the optimizer has this rank's parameters
  /// only. If one throws, the other ranks' waits also throw.
  void step_own(
      torch::optim::Optimizer& optimizer,
      const std::function<void()>& step);

  /// Sends each rank's parameters to all ranks. Throws `c10::ValueError` if
  /// those that became slices have other strides on another rank. Collective.
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
  std::vector<at::Tensor> own(const torch::optim::Optimizer& optimizer) const;
  void compare(const torch::optim::Optimizer& optimizer);
  void lay_out(int64_t owner, const std::vector<at::Tensor>& parameters);
  void verify_layout();
  void exchange_views();
  std::vector<int64_t> shard() const;
  c10::IValue own_part(const c10::IValue& state) const;

  ProcessGroup group_;
  bool views_;
  /// Elements of each rank so far.
  std::vector<int64_t> loads_;
  /// The owner of each parameter, by group.
  std::vector<std::vector<int64_t>> owners_;
  /// Each rank's parameters.
  std::vector<std::vector<at::Tensor>> parameters_;
  std::vector<Flat> flats_;
  /// The number of parameters that the ranks have compared.
  size_t compared_ = 0;
  /// Whether these are known to be the same on all ranks.
  bool verified_ = false;
};

} // namespace ddp::detail
