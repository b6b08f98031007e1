#pragma once

#include <ddp/process_group.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::detail {

/// Returns the dtype, the shape and, for a tensor that is not strided, the
/// layout; or "undefined".
std::string describe(const at::Tensor& tensor);

/// The tensors that hold the data of `tensor`, detached from autograd: the
/// tensor itself, or the values and indices of a sparse tensor.
std::vector<at::Tensor> dense_parts(const at::Tensor& tensor);

/// A hash (XXH3) of the bytes in logical order, independent of the strides.
uint64_t tensor_hash(const at::Tensor& tensor, uint64_t seed);

/// Whether `hash` is the same on all ranks. Collective.
bool is_same_on_all(uint64_t hash, const ProcessGroup& group);

/// The numbers of NaN and infinite elements of a tensor.
struct NotFinite {
  int64_t nan = 0;
  int64_t infinite = 0;
};

/// Counts the elements of a strided tensor of any dtype that are not finite. If
/// all elements are finite, reads the tensor once, and allocates no memory of
/// the tensor's size.
NotFinite count_not_finite(const at::Tensor& values);

inline bool is_finite(const NotFinite& count) {
  return count.nan + count.infinite == 0;
}

} // namespace ddp::detail
