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

/// One step of an optimizer, taken for some of its parameters at a time. Each
/// parameter's values become what one `step()` for all would make of them,
/// where the optimizer treats each by itself.
class PartialStep {
 public:
  /// `call`: what steps the parameters of the moment, if not the optimizer's
  /// `step`.
  explicit PartialStep(
      torch::optim::Optimizer& optimizer,
      std::function<void()> call = nullptr);
  PartialStep(const PartialStep&) = delete;
  PartialStep& operator=(const PartialStep&) = delete;
  /// Gives the optimizer its parameters back.
  ~PartialStep();

  /// Those of `parameters` that are the optimizer's and have not had it.
  void step(const std::vector<at::Tensor>& parameters);

  /// All others of the optimizer's.
  void step_rest();

 private:
  torch::optim::Optimizer& optimizer_;
  std::function<void()> call_;
  /// The groups' own lists, while the groups have those of the moment.
  std::vector<std::vector<at::Tensor>> lists_;
  /// The group of each that is left.
  std::unordered_map<at::TensorImpl*, size_t> left_;
};

} // namespace ddp::detail
