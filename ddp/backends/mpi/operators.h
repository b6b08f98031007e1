#pragma once

#include <c10/core/ScalarType.h>
#include <mpi.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ddp::backends::mpi {

/// MPI's type and operator for reducing the elements of a tensor.
struct Operator {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
  /// The number of values of `type` in one element.
  int per_element = 1;
};

/// Creates the operators that MPI lacks. Call this after MPI is initialized,
/// and before `operator_for`.
void create_operators();

/// The operator of a reduction. Bool uses logical operators; half and bfloat16
/// are computed in float, and each pair's result is rounded. MIN and MAX keep
/// NaN. AVG is computed as a SUM, which the caller divides. Throws
/// `c10::ValueError` if `op` is not defined for `dtype`.
Operator operator_for(c10::ScalarType dtype, const c10d::ReduceOp& op);

} // namespace ddp::backends::mpi
