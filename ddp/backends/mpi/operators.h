#pragma once

#include <c10/core/ScalarType.h>
#include <mpi.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace ddp::backends::mpi {

/// How MPI reduces the elements of a tensor.
struct Operator {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
  /// How many of `type` make one element.
  int per_element = 1;
};

/// Creates those that MPI does not have. To be called once MPI is there, and
/// before `operator_for`.
void create_operators();

/// Bool reduces by logic, half and bfloat16 in float with each pair's result
/// rounded; AVG is the SUM, which the caller divides. Throws `c10::ValueError`
/// where `dtype` has no such operation.
Operator operator_for(c10::ScalarType dtype, const c10d::ReduceOp& op);

} // namespace ddp::backends::mpi
