#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>

#include <functional>
#include <vector>

namespace ddp::detail {

/// Visitor: collects the tensors of a forward's output, to detect backward
/// passes through them.
class DDP_API OutputAnchors {
 public:
  /// A tensor that may be replaced.
  void operator()(at::Tensor& output);
  /// A tensor that must not be replaced.
  void operator()(const at::Tensor& output);

  /// Calls `on_backward` in each backward through one of the tensors, before
  /// the backward reaches the inputs of their operations. In a backward for
  /// some leaves only (autograd::grad has none), calls it if one of them
  /// `is_reduced`. Values do not change. If no tensor requires a gradient,
  /// those that can are made to require one: a rank whose output depends on no
  /// parameter then has a backward like the others.
  void attach(
      const std::function<void()>& on_backward,
      const std::function<bool(const at::Tensor& leaf)>& is_reduced) const;

 private:
  std::vector<at::Tensor*> replaceable_;
  std::vector<at::Tensor> fixed_;
};

} // namespace ddp::detail
