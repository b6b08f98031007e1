#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ddp/export.h>
#include <ddp/process_group.h>

#include <cstdint>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// Averages parameters over ranks in some steps, for training in which ranks do
/// not average their gradients in each (`PostLocalSGDHook`):
///
/// ```
/// loss.backward();
/// optimizer.step();
/// averager.average_parameters(optimizer);
/// ```
///
/// Each rank divides before the sum, as in Python: the same bits over gloo.
/// What Python's PostLocalSGDOptimizer is for, the step in checkpoints, is
/// `TrainingState::add("averager", averager)`.
class DDP_API ModelAverager {
 public:
  virtual ~ModelAverager() = default;

  /// Ends a step: averages `parameters` if it is due. Those without a gradient
  /// on any rank are left alone. Collective in the steps that are due.
  void average_parameters(const std::vector<at::Tensor>& parameters);

  /// The same for all parameters of an optimizer.
  void average_parameters(const torch::optim::Optimizer& optimizer);

  /// How many steps have ended.
  int64_t step() const {
    return step_;
  }

  /// The step; equal on all ranks.
  c10::IValue state_dict() const;
  void load_state_dict(const c10::IValue& state);

 protected:
  /// The group to average over in this step; null where it is not due.
  virtual const ProcessGroup* group_in(int64_t step) const = 0;

 private:
  int64_t step_ = 0;
};

} // namespace ddp
