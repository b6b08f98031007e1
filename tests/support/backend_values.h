#pragma once

#include <tests/support/catch.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

// For the tests of backends: the ranks' values, and the results of collectives.

namespace ddp::test {

using Tensors = std::vector<torch::Tensor>;
using Kind = c10d::ReduceOp::RedOpType;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// A rank's values, which every rank can compute: integers from -4 to 4, whose
/// sums are the same in any dtype and order.
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

/// Whether two tensors are equal in dtype and in all bits.
inline bool same(const torch::Tensor& a, const torch::Tensor& b) {
  const auto bytes = [](const torch::Tensor& tensor) {
    return tensor.contiguous().view(-1).view(torch::kByte);
  };
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
      (a.numel() == 0 || torch::equal(bytes(a), bytes(b)));
}

inline c10d::AllreduceOptions reduce_by(Kind kind) {
  c10d::AllreduceOptions options;
  options.reduceOp = kind;
  return options;
}

inline torch::Tensor reduced(const Tensors& all, Kind kind) {
  using Operation = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
  const std::map<Kind, Operation> others{
      {Kind::PRODUCT, torch::mul},
      {Kind::MIN, torch::minimum},
      {Kind::MAX, torch::maximum},
      {Kind::BAND, torch::bitwise_and},
      {Kind::BOR, torch::bitwise_or},
      {Kind::BXOR, torch::bitwise_xor}};
  const auto other = others.find(kind);
  auto result = all.front().clone();
  for (size_t i = 1; i < all.size(); ++i) {
    result =
        other == others.end() ? result + all[i] : other->second(result, all[i]);
  }
  return kind == Kind::AVG ? result / static_cast<double>(all.size()) : result;
}

/// The reduction of `values_of` all ranks.
inline torch::Tensor all_reduced(
    const c10::intrusive_ptr<c10d::Backend>& backend,
    torch::ScalarType dtype,
    int64_t count,
    Kind kind) {
  Tensors tensors{values_of(backend->getRank(), count, dtype)};
  backend->allreduce(tensors, reduce_by(kind))->wait();
  return tensors[0];
}

} // namespace ddp::test
