#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

namespace ddp::backends {

/// Divides a sum in place by `count`. LibTorch cannot divide complex half
/// numbers on the CPU, so their parts are divided.
void divide_sum(const at::Tensor& sum, int64_t count);

} // namespace ddp::backends

namespace ddp::backends::shm {

/// Reduces elements of several ranks, in rank order. Half and bfloat16 values
/// are reduced in float and rounded once.
class Reduction {
 public:
  /// Throws `c10::ValueError` if `op` is not defined for `dtype`. A mean is
  /// computed as a sum, which the caller divides.
  Reduction(c10::ScalarType dtype, const c10d::ReduceOp& op);

  /// Reduces `count` elements at `sources` into each of `targets`, which may be
  /// among the sources.
  void operator()(
      const std::vector<const char*>& sources,
      const std::vector<char*>& targets,
      int64_t count) const {
    function_(sources, targets, count * numbers_);
  }

  using Function = void (*)(
      const std::vector<const char*>&,
      const std::vector<char*>&,
      int64_t);

 private:
  Function function_;
  /// The number of real numbers in each element.
  int64_t numbers_ = 1;
};

} // namespace ddp::backends::shm
