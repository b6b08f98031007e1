#pragma once

#include <tests/support/catch.h>
#include <tests/support/mpi_ranks.h>

#include <ddp/backends/mpi.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <vector>

// For the tests of the MPI backend.

namespace ddp::test {

using Tensors = std::vector<torch::Tensor>;

inline backends::BackendOptions mpi_timeout(std::chrono::milliseconds timeout) {
  backends::BackendOptions options;
  options.timeout = timeout;
  return options;
}

/// A backend over all ranks.
inline c10::intrusive_ptr<c10d::Backend> mpi_backend(
    int64_t largest = backends::mpi::kLargestPiece,
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return backends::mpi::library().world()->create(
      mpi_timeout(timeout), largest);
}

/// Values that a rank has, which every rank can work out: integers from -4 to
/// 4, of which any dtype and order of sums gives the same.
inline torch::Tensor values_of(
    int64_t rank,
    int64_t count,
    torch::ScalarType dtype = torch::kFloat) {
  const auto steps = torch::arange(count) * (rank + 3) + rank * rank;
  const auto signed_values = steps.remainder(9) - 4;
  return (c10::isSignedType(dtype) && dtype != torch::kBool
              ? signed_values
              : signed_values.abs())
      .to(dtype);
}

inline Tensors values_of_all(
    int64_t size,
    int64_t count,
    torch::ScalarType dtype = torch::kFloat) {
  Tensors all;
  for (int64_t rank = 0; rank < size; ++rank) {
    all.push_back(values_of(rank, count, dtype));
  }
  return all;
}

/// Equal in dtype and all bits.
inline bool same(const torch::Tensor& a, const torch::Tensor& b) {
  const auto bytes = [](const torch::Tensor& tensor) {
    return tensor.contiguous().view(-1).view(torch::kByte);
  };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
      (a.numel() == 0 || torch::equal(bytes(a), bytes(b)));
}

} // namespace ddp::test
