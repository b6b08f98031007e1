#include <ddp/backends/mpi/operators.h>

#include <ddp/backends/common/reduction.h>
#include <ddp/backends/mpi/runtime.h>

#include <map>

namespace ddp::backends::mpi {
namespace {

using c10::ScalarType;
using Kind = c10d::ReduceOp::RedOpType;

/// An operator that MPI calls: `inout` = `in` * `inout`.
template <ScalarType dtype, Kind kind>
void combine(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  static const shm::Reduction reduce(dtype, kind);
  auto* target = static_cast<char*>(inout);
  reduce({static_cast<const char*>(in), target}, {target}, *count);
}

template <ScalarType dtype, Kind kind>
MPI_Op create() {
  MPI_Op op = MPI_OP_NULL;
  check_mpi(
      MPI_Op_create(combine<dtype, kind>, /*commute=*/1, &op), "MPI_Op_create");
  return op;
}

/// For floating-point dtypes. MPI's handles live as long as MPI.
template <ScalarType dtype>
MPI_Op own_operator(Kind kind) {
  static const std::map<Kind, MPI_Op> ops{
      {Kind::SUM, create<dtype, Kind::SUM>()},
      {Kind::PRODUCT, create<dtype, Kind::PRODUCT>()},
      {Kind::MIN, create<dtype, Kind::MIN>()},
      {Kind::MAX, create<dtype, Kind::MAX>()}};
  return ops.at(kind);
}

MPI_Op built_in(Kind kind, bool logical) {
  static const std::map<Kind, std::pair<MPI_Op, MPI_Op>> ops{
      {Kind::SUM, {MPI_SUM, MPI_LOR}},
      {Kind::PRODUCT, {MPI_PROD, MPI_LAND}},
      {Kind::MIN, {MPI_MIN, MPI_LAND}},
      {Kind::MAX, {MPI_MAX, MPI_LOR}},
      {Kind::BAND, {MPI_BAND, MPI_LAND}},
      {Kind::BOR, {MPI_BOR, MPI_LOR}},
      {Kind::BXOR, {MPI_BXOR, MPI_LXOR}}};
  const auto& [number, truth] = ops.at(kind);
  return logical ? truth : number;
}

MPI_Datatype native_type(ScalarType dtype) {
  static const std::map<ScalarType, MPI_Datatype> types{
      {ScalarType::Bool, MPI_C_BOOL},
      {ScalarType::Byte, MPI_UINT8_T},
      {ScalarType::Char, MPI_INT8_T},
      {ScalarType::Short, MPI_INT16_T},
      {ScalarType::Int, MPI_INT32_T},
      {ScalarType::Long, MPI_INT64_T},
      {ScalarType::UInt16, MPI_UINT16_T},
      {ScalarType::UInt32, MPI_UINT32_T},
      {ScalarType::UInt64, MPI_UINT64_T},
      {ScalarType::Float, MPI_FLOAT},
      {ScalarType::Double, MPI_DOUBLE},
      {ScalarType::ComplexFloat, MPI_C_FLOAT_COMPLEX},
      {ScalarType::ComplexDouble, MPI_C_DOUBLE_COMPLEX}};
  return types.at(dtype);
}

} // namespace

void create_operators() {
  own_operator<ScalarType::Half>(Kind::SUM);
  own_operator<ScalarType::BFloat16>(Kind::SUM);
  own_operator<ScalarType::Float>(Kind::MIN);
  own_operator<ScalarType::Double>(Kind::MIN);
}

Operator operator_for(ScalarType dtype, const c10d::ReduceOp& op) {
  const shm::Reduction checked(dtype, op); // throws if it is not defined
  const Kind kind = op.op_ == Kind::AVG ? Kind::SUM : op.op_;
  // MPI's own MIN and MAX lose NaN if a certain rank has it.
  const bool extreme = kind == Kind::MIN || kind == Kind::MAX;
  if (extreme && dtype == ScalarType::Float) {
    return {MPI_FLOAT, own_operator<ScalarType::Float>(kind)};
  }
  if (extreme && dtype == ScalarType::Double) {
    return {MPI_DOUBLE, own_operator<ScalarType::Double>(kind)};
  }
  switch (dtype) {
    case ScalarType::Half:
      return {MPI_UINT16_T, own_operator<ScalarType::Half>(kind)};
    case ScalarType::ComplexHalf: // as pairs, which only sums allow
      return {MPI_UINT16_T, own_operator<ScalarType::Half>(kind), 2};
    case ScalarType::BFloat16:
      return {MPI_UINT16_T, own_operator<ScalarType::BFloat16>(kind)};
    default:
      return {native_type(dtype), built_in(kind, dtype == ScalarType::Bool)};
  }
}

} // namespace ddp::backends::mpi
