#include <ddp/backends/mpi/operators.h>

#include <ddp/backends/common/arguments.h>
#include <ddp/backends/mpi/runtime.h>
#include <ddp/internal/check.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <functional>
#include <map>
#include <optional>

namespace ddp::backends::mpi {
namespace {

using c10::ScalarType;
using Kind = c10d::ReduceOp::RedOpType;

template <typename Key, typename Value>
std::optional<Value> find(const std::map<Key, Value>& values, Key key) {
  const auto found = values.find(key);
  return found == values.end() ? std::nullopt
                               : std::make_optional(found->second);
}

struct Smaller {
  float operator()(float a, float b) const {
    return b < a ? b : a;
  }
};

struct Larger {
  float operator()(float a, float b) const {
    return a < b ? b : a;
  }
};

/// An operator that MPI calls: `inout` = `in` * `inout`.
template <typename T, typename Function>
void combine(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const auto* a = static_cast<const T*>(in);
  auto* b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) {
    b[i] = static_cast<T>(Function()(static_cast<float>(a[i]), float(b[i])));
  }
}

template <typename T, typename Function>
MPI_Op create() {
  MPI_Op op = MPI_OP_NULL;
  check_mpi(
      MPI_Op_create(combine<T, Function>, /*commute=*/1, &op), "MPI_Op_create");
  return op;
}

/// For half or bfloat16. MPI's handles live as long as MPI.
template <typename T>
std::optional<MPI_Op> small_float(Kind kind) {
  static const std::map<Kind, MPI_Op> ops{
      {Kind::SUM, create<T, std::plus<>>()},
      {Kind::PRODUCT, create<T, std::multiplies<>>()},
      {Kind::MIN, create<T, Smaller>()},
      {Kind::MAX, create<T, Larger>()}};
  return find(ops, kind);
}

/// For bools.
std::optional<MPI_Op> logical(Kind kind) {
  switch (kind) {
    case Kind::SUM:
    case Kind::MAX:
    case Kind::BOR:
      return MPI_LOR;
    case Kind::PRODUCT:
    case Kind::MIN:
    case Kind::BAND:
      return MPI_LAND;
    case Kind::BXOR:
      return MPI_LXOR;
    default:
      return std::nullopt;
  }
}

std::optional<MPI_Op> arithmetic(Kind kind, ScalarType dtype) {
  if (kind == Kind::SUM || kind == Kind::PRODUCT) {
    return kind == Kind::SUM ? MPI_SUM : MPI_PROD;
  }
  if (kind == Kind::MIN || kind == Kind::MAX) {
    const auto op = kind == Kind::MIN ? MPI_MIN : MPI_MAX;
    return c10::isComplexType(dtype) ? std::nullopt : std::make_optional(op);
  }
  if (!c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return std::nullopt;
  }
  return kind == Kind::BAND ? std::make_optional(MPI_BAND)
      : kind == Kind::BOR   ? std::make_optional(MPI_BOR)
      : kind == Kind::BXOR  ? std::make_optional(MPI_BXOR)
                            : std::nullopt;
}

std::optional<MPI_Datatype> native_type(ScalarType dtype) {
  static const std::map<ScalarType, MPI_Datatype> types{
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
  return find(types, dtype);
}

/// The type, and the operation if there is one.
struct Choice {
  std::optional<MPI_Datatype> type;
  std::optional<MPI_Op> op;
  int per_element = 1;
};

Choice choose(ScalarType dtype, Kind kind) {
  switch (dtype) {
    case ScalarType::Bool:
      return {MPI_C_BOOL, logical(kind)};
    case ScalarType::Half:
      return {MPI_UINT16_T, small_float<c10::Half>(kind)};
    case ScalarType::BFloat16:
      return {MPI_UINT16_T, small_float<c10::BFloat16>(kind)};
    case ScalarType::ComplexHalf: // as pairs, which only sums allow
      return {
          MPI_UINT16_T,
          kind == Kind::SUM ? small_float<c10::Half>(kind) : std::nullopt,
          2};
    default:
      return {native_type(dtype), arithmetic(kind, dtype)};
  }
}

} // namespace

void create_operators() {
  small_float<c10::Half>(Kind::SUM);
  small_float<c10::BFloat16>(Kind::SUM);
}

Operator operator_for(ScalarType dtype, const c10d::ReduceOp& op) {
  const Kind kind = op.op_;
  const bool mean = kind == Kind::AVG;
  const auto choice = choose(dtype, mean ? Kind::SUM : kind);
  DDP_CHECK_VALUE(
      choice.type,
      "backend mpi does not reduce tensors of {}; it can only move them",
      dtype);
  DDP_CHECK_VALUE(
      choice.op &&
          (!mean || c10::isFloatingType(dtype) || c10::isComplexType(dtype)),
      "backend mpi does not reduce tensors of {} by {}",
      dtype,
      reduction_name(kind));
  return {*choice.type, *choice.op, choice.per_element};
}

} // namespace ddp::backends::mpi
