#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace ddp::detail {

/// One step of an optimizer, done for some of its parameters at a time. The
/// results equal those of one `step()` for all parameters, if the optimizer
/// treats each parameter separately.
class PartialStep {
 public:
  /// `call`, if not null, steps the current parameters instead of the
  /// optimizer's `step`.
  explicit PartialStep(
      torch::optim::Optimizer& optimizer,
      std::function<void()> call = nullptr);
  PartialStep(const PartialStep&) = delete;
  PartialStep& operator=(const PartialStep&) = delete;
  /// Restores the optimizer's parameters.
  ~PartialStep();

  /// Steps those `parameters` of the optimizer that have not been stepped.
  void step(const std::vector<at::Tensor>& parameters);

  /// Steps all other parameters of the optimizer.
  void step_rest();

 private:
  torch::optim::Optimizer& optimizer_;
  std::function<void()> call_;
  /// The original lists of the groups, while the groups contain only the
  /// current parameters.
  std::vector<std::vector<at::Tensor>> lists_;
  /// The group of each remaining parameter.
  std::unordered_map<at::TensorImpl*, size_t> left_;
};

} // namespace ddp::detail
