#pragma once

#include <torch/torch.h>

namespace ddp::test {

/// Equal but for rounding, with the tolerances of Python's `assertEqual`: what
/// nearly cancels in a sum is compared by its size before.
inline bool nearly_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == at::kDouble ? at::allclose(a, b, 1e-7, 1e-7)
                                        : at::allclose(a, b, 1.3e-6, 1e-5);
}

/// Whether two nets' parameters are.
inline bool nearly_equal(
    const torch::nn::Module& a,
    const torch::nn::Module& b) {
  const auto left = a.parameters();
  const auto right = b.parameters();
  return std::equal(
      left.begin(),
      left.end(),
      right.begin(),
      right.end(),
      [](const at::Tensor& x, const at::Tensor& y) {
        return nearly_equal(x, y);
      });
}

} // namespace ddp::test
