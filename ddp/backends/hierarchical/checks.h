#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

namespace ddp::backends::hierarchical {

/// The elements of a dense tensor without gaps, in the order of its memory,
/// which they share. Throws `c10::ValueError` where it is not on the CPU.
at::Tensor elements(const char* name, const at::Tensor& tensor);

/// Throws `c10::ValueError` where there is no such reduction.
void check_operation(
    const char* name,
    const c10d::ReduceOp& op,
    at::ScalarType dtype);

/// The number of elements of the largest.
int64_t longest(const std::vector<at::Tensor>& tensors);

} // namespace ddp::backends::hierarchical
