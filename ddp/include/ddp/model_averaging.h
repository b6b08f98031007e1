#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <map>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Averages parameters over ranks in some steps, for training in which ranks do
/// not average their gradients in each step (`PostLocalSGDHook`):
///
/// ```
/// loss.backward();
/// optimizer.step();
/// averager.average_parameters(optimizer);
/// ```
///
/// Each rank divides before the sum, as in Python: the same bits over gloo. In
/// place of Python's PostLocalSGDOptimizer, which keeps the step in
/// checkpoints, use `TrainingState::add("averager", averager)`.
class DDP_API ModelAverager {
 public:
  virtual ~ModelAverager() = default;

  /// Ends a step: averages `parameters` if it is due. Parameters without a
  /// gradient on all ranks do not change. Collective in the steps that are due.
  void average_parameters(const std::vector<at::Tensor>& parameters);

  /// As above, for all parameters of an optimizer.
  void average_parameters(const torch::optim::Optimizer& optimizer);

  /// The number of steps that have ended.
  int64_t step() const {
    return step_;
  }

  /// The step; equal on all ranks. Not collective.
  c10::IValue state_dict() const;
  /// Loads what `state_dict` returned. Not collective.
  void load_state_dict(const c10::IValue& state);

 protected:
  /// The group to average over in this step; null if it is not due.
  virtual const ProcessGroup* group_in(int64_t step) const = 0;

 private:
  int64_t step_ = 0;
};

/// Options of `PeriodicModelAverager`, with Python's names.
struct PeriodicModelAveragerOptions {
  /// The number of steps between two averagings.
  TORCH_ARG(int64_t, period) = 1;

  /// The number of steps before the first averaging.
  TORCH_ARG(int64_t, warmup_steps) = 0;
};

/// Averages parameters over `group` every `period` steps from `warmup_steps`
/// on.
class DDP_API PeriodicModelAverager final : public ModelAverager {
 public:
  /// Throws `c10::ValueError` for a period below 1 or warm-up below 0.
  PeriodicModelAverager(
      const ProcessGroup& group,
      const PeriodicModelAveragerOptions& options);

 private:
  const ProcessGroup* group_in(int64_t step) const override;

  ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
};

/// Sizes of groups by period.
using PeriodGroupSizes = std::map<int64_t, int64_t>;

/// Options of `HierarchicalModelAverager`, with Python's names.
struct HierarchicalModelAveragerOptions {
  /// For each period, in steps, the number of neighbouring ranks that average.
  /// The last is the size of the group.
  TORCH_ARG(PeriodGroupSizes, period_group_size);

  /// The number of steps before the first averaging.
  TORCH_ARG(int64_t, warmup_steps) = 0;
};

/// Averages parameters over small groups often, and over larger ones less
/// often. A step whose number, from 0, is a multiple of a period averages over
/// the group of the longest such period.
class DDP_API HierarchicalModelAverager final : public ModelAverager {
 public:
  /// Splits `group` into neighbours. Collective. Throws `c10::ValueError` if a
  /// period or size is below 1, a size does not divide that of `group`, the
  /// last size is not that of `group`, or `warmup_steps` is below 0.
  HierarchicalModelAverager(
      const ProcessGroup& group,
      const HierarchicalModelAveragerOptions& options);

 private:
  const ProcessGroup* group_in(int64_t step) const override;

  /// By period.
  std::map<int64_t, ProcessGroup> groups_;
  int64_t warmup_steps_;
};

} // namespace ddp
