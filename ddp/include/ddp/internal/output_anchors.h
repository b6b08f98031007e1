#pragma once

#include <ATen/core/Tensor.h>
#include <ddp/internal/export.h>

#include <functional>
#include <vector>

namespace ddp::detail {

/// Visitor: collects the tensors of a forward's output, to be told when a
/// backward comes through one of them.
class DDP_API OutputAnchors {
 public:
  /// A tensor that may be replaced.
  void operator()(at::Tensor& output);
  /// One that may not.
  void operator()(const at::Tensor& output);

  /// Calls `on_backward` in each backward that comes through one of the
  /// tensors, before it reaches what they were computed from; if a backward is
  /// for some leaves only (and autograd::grad is for none), if one of them
  /// `is_reduced`. Values stay what they are. If no tensor requires a gradient,
  /// those that could are made to, so that a rank whose output depends on no
  /// parameter has a backward like the others.
  void attach(
      const std::function<void()>& on_backward,
      const std::function<bool(const at::Tensor& leaf)>& is_reduced) const;

 private:
  std::vector<at::Tensor*> replaceable_;
  std::vector<at::Tensor> fixed_;
};

} // namespace ddp::detail
