#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace ddp::detail {

/// Receives parameters' gradients.
class GradientListener {
 public:
  virtual ~GradientListener() = default;

  /// Called after autograd has added a share of this backward pass to
  /// `gradient`, which may still be undefined. `index` identifies the
  /// parameter. With activation checkpointing, called several times in one
  /// backward pass.
  virtual void on_gradient(size_t index, at::Tensor& gradient) = 0;

  /// If false, another listener may replace this listener.
  virtual bool is_of_use() const = 0;
};

/// Calls `listener` for each gradient that `parameter` accumulates. The hook is
/// on the tensor rather than on its AccumulateGrad node, which LibTorch
/// replaces when the tensor is converted. An existing hook is kept and runs
/// first.
void add_gradient_hook(
    const at::Tensor& parameter,
    GradientListener& listener,
    size_t index);

/// Same as above, and keeps the listener alive.
void add_gradient_hook(
    const at::Tensor& parameter,
    std::shared_ptr<GradientListener> listener,
    size_t index);

/// Removes the hook of `add_gradient_hook`, if the hook still exists.
void remove_gradient_hook(
    const at::Tensor& parameter,
    const GradientListener& listener);

/// The listener of `parameter`, or null.
GradientListener* gradient_listener(const at::Tensor& parameter);

} // namespace ddp::detail
