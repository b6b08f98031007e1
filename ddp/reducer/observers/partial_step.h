#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
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
  explicit PartialStep(torch::optim::Optimizer& optimizer);
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
  /// The groups' own lists, while the groups have those of the moment.
  std::vector<std::vector<at::Tensor>> lists_;
  /// The group of each that is left.
  std::unordered_map<at::TensorImpl*, size_t> left_;
};

} // namespace ddp::detail
