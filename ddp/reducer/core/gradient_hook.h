#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace ddp::detail {

/// Who is told when a parameter's gradient is complete.
class GradientListener {
 public:
  virtual ~GradientListener() = default;

  /// Called by autograd, when the `gradient` of parameter `index` has got this
  /// backward's share, and may still be undefined; with activation
  /// checkpointing several times in one backward.
  virtual void on_gradient(size_t index, at::Tensor& gradient) = 0;

  /// Unless it is, another may take its place.
  virtual bool is_of_use() const = 0;
};

/// Calls `listener` for each gradient that `parameter` accumulates. The hook
/// lies in the tensor and not on its AccumulateGrad node, which LibTorch
/// replaces when the tensor is converted. A hook that is there already is kept
/// and runs first.
void add_gradient_hook(
    const at::Tensor& parameter,
    GradientListener& listener,
    size_t index);

/// The same, and keeps the listener.
void add_gradient_hook(
    const at::Tensor& parameter,
    std::shared_ptr<GradientListener> listener,
    size_t index);

/// Takes back what `add_gradient_hook` did, if it is still there.
void remove_gradient_hook(
    const at::Tensor& parameter,
    const GradientListener& listener);

/// The listener of `parameter`, or null.
GradientListener* gradient_listener(const at::Tensor& parameter);

} // namespace ddp::detail
