#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::backends {

/// The name of a reduction for messages, such as "SUM".
const char* reduction_name(c10d::ReduceOp::RedOpType kind);

/// Checks the arguments of a backend's collectives. The functions throw a
/// `c10::ValueError` that names the collective.
class Arguments {
 public:
  using Tensors = std::vector<at::Tensor>;

  Arguments(const char* backend, int rank, int size)
      : backend_(backend), rank_(rank), size_(size) {}

  /// Returns text such as "all_reduce over shm".
  std::string over(const char* name) const;
  /// Throws `c10::DistBackendError` if `error`, the reason why the group ended,
  /// is not empty.
  void check_usable(const char* name, const std::string& error) const;

  /// Checks that `tensor` is strided, without gaps or overlaps, and that its
  /// memory holds its values.
  void check_dense(const char* name, const at::Tensor& tensor) const;
  void check_contiguous(const char* name, const at::Tensor& tensor) const;
  void check_on_cpu(const char* name, const at::Tensor& tensor) const;
  const at::Tensor& only(const char* name, const Tensors& tensors) const;
  /// Checks that `lists` has one list, with one entry for each rank, and
  /// returns the list.
  const Tensors& only_list(const char* name, const std::vector<Tensors>& lists)
      const;
  /// Checks that a list of `length` entries has one entry for each rank.
  void check_list(const char* name, size_t length) const;
  void check_same_dtype(
      const char* name,
      const at::Tensor& tensor,
      at::TensorList others) const;
  void check_root(const char* name, int64_t root) const;
  void check_peer(const char* name, int peer) const;
  /// For ranks other than the root: checks that this rank passes no lists.
  void check_no_lists(const char* name, const std::vector<Tensors>& lists)
      const;
  /// Splits a tensor of all_to_all_single along the first dimension into parts
  /// of these lengths, or of equal length if `lengths` is empty.
  Tensors parts(
      const char* name,
      const at::Tensor& tensor,
      const std::vector<int64_t>& lengths) const;
  /// One part of the tensor for each rank, of `numel` elements each.
  Tensors equal_parts(const char* name, const at::Tensor& tensor, int64_t numel)
      const;

 private:
  const char* backend_;
  int rank_;
  int size_;
};

} // namespace ddp::backends
