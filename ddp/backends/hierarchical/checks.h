#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddp::backends::hierarchical {

/// The elements of a dense tensor without gaps, in the order of its memory,
/// which they share. Throws `c10::ValueError` where it is not on the CPU.
at::Tensor elements(const char* name, const at::Tensor& tensor);

/// The number of elements of the largest.
int64_t longest(const std::vector<at::Tensor>& tensors);

} // namespace ddp::backends::hierarchical
