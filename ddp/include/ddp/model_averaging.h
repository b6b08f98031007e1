#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/internal/export.h>
#include <ddp/process_group.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Averages parameters across ranks in some steps, for training that does not
/// average gradients across all ranks in each step (`PostLocalSGDHook`):
///
/// ```
/// loss.backward();
/// optimizer.step();
/// averager.average_parameters(optimizer);
/// ```
///
/// Each rank divides before the sum, as in Python, so results over gloo are
/// bit-identical to Python's. To save the step in checkpoints, as Python's
/// PostLocalSGDOptimizer does, use `TrainingState::add("averager", averager)`.
class DDP_API ModelAverager {
 public:
  virtual ~ModelAverager() = default;

  /// Ends a step, and averages `parameters` if an averaging is due. A parameter
  /// that has no gradient on any rank does not change. Collective if an
  /// averaging is due.
  void average_parameters(const std::vector<at::Tensor>& parameters);

  /// As above, for all parameters of an optimizer.
  void average_parameters(const torch::optim::Optimizer& optimizer);

  /// The number of steps that have ended.
  int64_t step() const {
    return step_;
  }

  /// The number of steps; equal on all ranks. Not collective.
  c10::IValue state_dict() const;
  /// Loads the result of `state_dict`. Throws `c10::ValueError` for any other
  /// value. Not collective.
  void load_state_dict(const c10::IValue& state);
  /// Checks a state as `load_state_dict` does; returns a function to load it.
  std::function<void()> plan_state_dict(const c10::IValue& state);

 protected:
  /// The group to average over in this step; null if no averaging is due.
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

/// Averages parameters over `group` every `period` steps, after the first
/// `warmup_steps`.
class DDP_API PeriodicModelAverager final : public ModelAverager {
 public:
  /// Throws `c10::ValueError` if `period` is below 1 or `warmup_steps` is below
  /// 0.
  PeriodicModelAverager(
      const ProcessGroup& group,
      const PeriodicModelAveragerOptions& options);

 private:
  const ProcessGroup* group_in(int64_t step) const override;

  ProcessGroup group_;
  PeriodicModelAveragerOptions options_;
};

/// Group sizes by period.
using PeriodGroupSizes = std::map<int64_t, int64_t>;

/// Options of `HierarchicalModelAverager`, with Python's names;
/// `period_group_size` is Python's period_group_size_dict.
struct HierarchicalModelAveragerOptions {
  /// For each period, in steps, the number of neighboring ranks that average.
  /// The last number is the group's size.
  TORCH_ARG(PeriodGroupSizes, period_group_size);

  /// The number of steps before the first averaging.
  TORCH_ARG(int64_t, warmup_steps) = 0;
};

/// Averages parameters over small groups often, and over larger groups less
/// often. Steps are counted from 0. The longest period that divides a step's
/// number selects the group.
class DDP_API HierarchicalModelAverager final : public ModelAverager {
 public:
  /// Splits `group` into groups of neighboring ranks. Collective. Throws
  /// `c10::ValueError` if a period or size is below 1, a size does not divide
  /// `group.size()`, the last size is not `group.size()`, or `warmup_steps` is
  /// below 0.
  HierarchicalModelAverager(
      const ProcessGroup& group,
      const HierarchicalModelAveragerOptions& options);

 private:
  const ProcessGroup* group_in(int64_t step) const override;

  /// The groups by period.
  std::map<int64_t, ProcessGroup> groups_;
  int64_t warmup_steps_;
};

} // namespace ddp
