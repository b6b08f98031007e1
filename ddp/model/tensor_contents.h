#pragma once

#include <ddp/process_group.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::detail {

/// Dtype, shape and, where it is not strided, layout; or "undefined".
std::string describe(const at::Tensor& tensor);

/// The tensors without autograd that hold what `tensor` holds: itself, or the
/// values and indices of a sparse one.
std::vector<at::Tensor> dense_parts(const at::Tensor& tensor);

/// A hash (XXH3) of the bytes in logical order, whatever the strides.
uint64_t tensor_hash(const at::Tensor& tensor, uint64_t seed);

/// Collective.
bool is_same_on_all(uint64_t hash, const ProcessGroup& group);

/// How many elements of a tensor are not finite.
struct NotFinite {
  int64_t nan = 0;
  int64_t infinite = 0;
};

/// Counts them in a strided tensor of any dtype. Reads it once where there are
/// none, without memory of its size.
NotFinite count_not_finite(const at::Tensor& values);

inline bool is_finite(const NotFinite& count) {
  return count.nan + count.infinite == 0;
}

} // namespace ddp::detail
