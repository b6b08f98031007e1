#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>

#include <functional>
#include <vector>

namespace ddp::detail {

/// A visitor that collects the tensors of a forward pass's output, to detect
/// backward passes through them.
class DDP_API OutputAnchors {
 public:
  /// Adds a tensor that may be replaced.
  void operator()(at::Tensor& output);
  /// Adds a tensor that must not be replaced.
  void operator()(const at::Tensor& output);

  /// Calls `on_backward` in each backward pass through one of the tensors,
  /// before the pass reaches the inputs of the tensor's operation. If a pass
  /// accumulates into selected leaves only (none for autograd::grad), calls
  /// `on_backward` only if one of these leaves `is_reduced`. Values do not
  /// change. If no tensor requires a gradient, replaceable tensors are made to
  /// require one, so that a rank whose output depends on no parameter also has
  /// a backward pass.
  void attach(
      const std::function<void()>& on_backward,
      const std::function<bool(const at::Tensor& leaf)>& is_reduced) const;

 private:
  std::vector<at::Tensor*> replaceable_;
  std::vector<at::Tensor> fixed_;
};

} // namespace ddp::detail
