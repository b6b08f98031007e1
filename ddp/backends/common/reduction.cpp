#include <ddp/backends/common/reduction.h>

#include <ddp/backends/common/arguments.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>

#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <functional>
#include <type_traits>

// One function for each vector unit, from which the loader chooses.
// Architectures (arch=) would select CPUs of one vendor only.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DDP_EACH_VECTOR_UNIT \
  __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define DDP_EACH_VECTOR_UNIT
#endif

namespace ddp::backends {

void divide_sum(const at::Tensor& sum, int64_t count) {
  const bool by_parts = sum.scalar_type() == at::kComplexHalf;
  (by_parts ? detail::as_real(sum) : sum).div_(count);
}

} // namespace ddp::backends

namespace ddp::backends::shm {
namespace {

using c10::ScalarType;
using Kind = c10d::ReduceOp::RedOpType;

struct Smaller {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a || b != b ? b : a; // keeps NaN, as ATen does
  }
};

struct Larger {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || b != b ? b : a;
  }
};

/// The type of intermediate results: half and bfloat16 would lose too much.
template <typename T>
using Accumulator = std::conditional_t<
    std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>,
    float,
    T>;

/// The sums of a block stay in the first-level cache.
constexpr int64_t kBlockBytes = 8192;

template <typename T, typename Operation>
struct Kernel {
  using Sum = Accumulator<T>;
  static constexpr int64_t kBlock = kBlockBytes / int64_t(sizeof(Sum));

  DDP_EACH_VECTOR_UNIT static void first(
      Sum* __restrict sum,
      const T* __restrict source,
      int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = static_cast<Sum>(source[i]);
    }
  }

  DDP_EACH_VECTOR_UNIT static void add(
      Sum* __restrict sum,
      const T* __restrict source,
      int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sum[i] =
          static_cast<Sum>(Operation()(sum[i], static_cast<Sum>(source[i])));
    }
  }

  DDP_EACH_VECTOR_UNIT static void store(
      T* __restrict target,
      const Sum* __restrict sum,
      int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      target[i] = static_cast<T>(sum[i]);
    }
  }

  /// Reduces two ranks' elements in place.
  DDP_EACH_VECTOR_UNIT static void pair(
      T* __restrict a,
      T* __restrict b,
      int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto sum = static_cast<T>(
          Operation()(static_cast<Sum>(a[i]), static_cast<Sum>(b[i])));
      a[i] = sum;
      b[i] = sum;
    }
  }

  static void run(
      const std::vector<const char*>& sources,
      const std::vector<char*>& targets,
      int64_t total) {
    if (targets.size() == 2 && sources.size() == 2 &&
        sources[0] == targets[0] && sources[1] == targets[1]) {
      pair(
          reinterpret_cast<T*>(targets[0]),
          reinterpret_cast<T*>(targets[1]),
          total);
      return;
    }
    alignas(64) Sum sum[kBlock];
    for (int64_t begin = 0; begin < total; begin += kBlock) {
      const auto count = std::min(kBlock, total - begin);
      const auto at = [&](const char* data) {
        return reinterpret_cast<const T*>(data) + begin;
      };
      first(sum, at(sources[0]), count);
      for (size_t rank = 1; rank < sources.size(); ++rank) {
        add(sum, at(sources[rank]), count);
      }
      for (char* target : targets) {
        store(reinterpret_cast<T*>(target) + begin, sum, count);
      }
    }
  }
};

template <typename T>
Reduction::Function arithmetic(Kind kind) {
  if (kind == Kind::SUM) {
    return Kernel<T, std::plus<>>::run;
  }
  if (kind == Kind::PRODUCT) {
    return Kernel<T, std::multiplies<>>::run;
  }
  if constexpr (!c10::is_complex<T>::value) {
    if (kind == Kind::MIN || kind == Kind::MAX) {
      return kind == Kind::MIN ? Kernel<T, Smaller>::run
                               : Kernel<T, Larger>::run;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    return kind == Kind::BAND ? Kernel<T, std::bit_and<>>::run
        : kind == Kind::BOR   ? Kernel<T, std::bit_or<>>::run
        : kind == Kind::BXOR  ? Kernel<T, std::bit_xor<>>::run
                              : nullptr;
  }
  return nullptr;
}

/// Bools are bytes of 0 and 1.
Reduction::Function logical(Kind kind) {
  switch (kind) {
    case Kind::SUM:
    case Kind::MAX:
    case Kind::BOR:
      return Kernel<uint8_t, std::bit_or<>>::run;
    case Kind::PRODUCT:
    case Kind::MIN:
    case Kind::BAND:
      return Kernel<uint8_t, std::bit_and<>>::run;
    case Kind::BXOR:
      return Kernel<uint8_t, std::bit_xor<>>::run;
    default:
      return nullptr;
  }
}

Reduction::Function choose(ScalarType dtype, Kind kind) {
  switch (dtype) {
    case ScalarType::Bool:
      return logical(kind);
    case ScalarType::Half:
      return arithmetic<c10::Half>(kind);
    case ScalarType::BFloat16:
      return arithmetic<c10::BFloat16>(kind);
#define DDP_CASE(type, name) \
  case ScalarType::name:     \
    return arithmetic<type>(kind);
      AT_FORALL_SCALAR_TYPES_AND3(UInt16, UInt32, UInt64, DDP_CASE)
      AT_FORALL_COMPLEX_TYPES(DDP_CASE)
#undef DDP_CASE
    default:
      return nullptr;
  }
}

} // namespace

Reduction::Reduction(ScalarType dtype, const c10d::ReduceOp& op) {
  const Kind kind = op.op_;
  const bool mean = kind == Kind::AVG;
  const bool divisible =
      c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  if (dtype == ScalarType::ComplexHalf && (mean || kind == Kind::SUM)) {
    function_ = arithmetic<c10::Half>(Kind::SUM);
    numbers_ = 2;
  } else {
    function_ = choose(dtype, mean ? Kind::SUM : kind);
  }
  DDP_CHECK_VALUE(
      function_ && (!mean || divisible),
      "tensors of {} cannot be reduced by {}",
      dtype,
      reduction_name(kind));
}

} // namespace ddp::backends::shm
