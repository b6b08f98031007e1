#pragma once

#include <tests/support/mpi_backend.h>

// What the MPI backend's reductions shall give.

namespace ddp::test {

using Kind = c10d::ReduceOp::RedOpType;

inline c10d::AllreduceOptions reduce_by(Kind kind) {
  c10d::AllreduceOptions options;
  options.reduceOp = kind;
  return options;
}

inline torch::Tensor reduced(const Tensors& all, Kind kind) {
  auto result = all.front().clone();
  for (size_t i = 1; i < all.size(); ++i) {
    const auto& next = all[i];
    switch (kind) {
      case Kind::PRODUCT:
        result = result * next;
        break;
      case Kind::MIN:
        result = torch::minimum(result, next);
        break;
      case Kind::MAX:
        result = torch::maximum(result, next);
        break;
      case Kind::BAND:
        result = torch::bitwise_and(result, next);
        break;
      case Kind::BOR:
        result = torch::bitwise_or(result, next);
        break;
      case Kind::BXOR:
        result = torch::bitwise_xor(result, next);
        break;
      default:
        result = result + next;
    }
  }
  return kind == Kind::AVG ? result / static_cast<double>(all.size()) : result;
}

/// Of the values that each rank has.
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
