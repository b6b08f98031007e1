#include <ddp/reducer/core/scaled_copy.h>

#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>

namespace ddp::detail {
namespace {

// In elements. Larger gradients are divided among threads.
constexpr int64_t kSmall = 1 << 15;

// In bytes. The caches evict a larger result before it is read again.
constexpr int64_t kLarge = 4 << 20;

template <typename Real>
[[gnu::always_inline]] inline void multiply_blocks(
    Real* __restrict to,
    const Real* __restrict from,
    int64_t count,
    Real scale) {
  constexpr int64_t kBlock = 64; // several vectors per iteration
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int64_t j = 0; j < kBlock; ++j) {
      to[i + j] = from[i + j] * scale;
    }
  }
  for (; i < count; ++i) {
    to[i] = from[i] * scale;
  }
}

#ifdef __x86_64__
template <typename Real>
[[gnu::target("avx2")]] void multiply_by_avx2(
    Real* to,
    const Real* from,
    int64_t count,
    Real scale) {
  multiply_blocks(to, from, count, scale);
}

const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
#endif

template <typename Real>
void multiply(Real* to, const Real* from, int64_t count, Real scale) {
#ifdef __x86_64__
  if (kHasAvx2) {
    multiply_by_avx2(to, from, count, scale);
    return;
  }
#endif
  multiply_blocks(to, from, count, scale);
}

#ifdef __x86_64__
void stream(float* to, const float* from, float scale) {
  _mm_stream_ps(to, _mm_mul_ps(_mm_loadu_ps(from), _mm_set1_ps(scale)));
}

void stream(double* to, const double* from, double scale) {
  _mm_stream_pd(to, _mm_mul_pd(_mm_loadu_pd(from), _mm_set1_pd(scale)));
}

/// As `multiply`, but stores bypass the caches, which would otherwise first
/// read the memory that is overwritten.
template <typename Real>
void multiply_past_caches(
    Real* __restrict to,
    const Real* __restrict from,
    int64_t count,
    Real scale) {
  constexpr auto kLanes = static_cast<int64_t>(sizeof(__m128) / sizeof(Real));
  const auto misplaced = static_cast<int64_t>(
      reinterpret_cast<uintptr_t>(to) % sizeof(__m128) / sizeof(Real));
  int64_t i = std::min(count, (kLanes - misplaced) % kLanes);
  multiply(to, from, i, scale);
  for (; i + kLanes <= count; i += kLanes) {
    stream(to + i, from + i, scale);
  }
  multiply(to + i, from + i, count - i, scale);
  _mm_sfence();
}
#else
template <typename Real>
void multiply_past_caches(
    Real* to,
    const Real* from,
    int64_t count,
    Real scale) {
  multiply(to, from, count, scale);
}
#endif

template <typename Real>
void scaled_copy_of(
    const at::Tensor& target,
    const at::Tensor& source,
    double factor) {
  const auto count = source.numel();
  const auto scale = static_cast<Real>(factor);
  const auto* from = static_cast<const Real*>(source.const_data_ptr());
  auto* to = static_cast<Real*>(target.mutable_data_ptr());
  if (count <= kSmall) {
    multiply(to, from, count, scale);
    return;
  }
  const auto bytes = count * static_cast<int64_t>(sizeof(Real));
  auto* const run =
      bytes < kLarge ? &multiply<Real> : &multiply_past_caches<Real>;
  at::parallel_for(0, count, kSmall, [&](int64_t begin, int64_t end) {
    run(to + begin, from + begin, end - begin, scale);
  });
}

} // namespace

Factor make_factor(double value) {
  return {value, at::native::wrapped_scalar_tensor(value)};
}

void scaled_copy(
    at::Tensor& target,
    const at::Tensor& source,
    const Factor& factor) {
  const auto dtype = source.scalar_type();
  const bool alike = (source.is_contiguous() && target.is_contiguous()) ||
      (source.strides() == target.strides() &&
       target.is_non_overlapping_and_dense());
  const bool plain = alike && source.is_cpu() && has_plain_memory(source) &&
      target.scalar_type() == dtype;
  if (plain) { // as the operators of LibTorch do
    target.unsafeGetTensorImpl()->bump_version();
  }
  if (plain && dtype == at::kFloat) {
    scaled_copy_of<float>(target, source, factor.value);
  } else if (plain && dtype == at::kDouble) {
    scaled_copy_of<double>(target, source, factor.value);
  } else {
    at::NoGradGuard no_grad;
    at::mul_out(target, source, factor.wrapped);
  }
}

} // namespace ddp::detail
