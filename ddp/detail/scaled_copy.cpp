#include <ddp/detail/scaled_copy.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace ddp::detail {
namespace {

// Above this ATen's dispatch is small against the work, which it shares out to
// threads.
constexpr int64_t kSmall = 1 << 15;

template <typename Real>
void multiply(at::Tensor& target, const at::Tensor& source, double factor) {
  const auto count = source.numel();
  const auto scale = static_cast<Real>(factor);
  const Real* __restrict from = source.const_data_ptr<Real>();
  Real* __restrict to = target.mutable_data_ptr<Real>();
  for (int64_t i = 0; i < count; ++i) {
    to[i] = from[i] * scale;
  }
}

} // namespace

void scaled_copy(
    at::Tensor& target,
    const at::Tensor& source,
    const at::Tensor& factor) {
  const bool plain = source.is_cpu() && source.numel() <= kSmall &&
      source.is_contiguous() && target.is_contiguous() &&
      source.scalar_type() == target.scalar_type();
  if (plain && source.scalar_type() == at::kFloat) {
    multiply<float>(target, source, *factor.const_data_ptr<double>());
  } else if (plain && source.scalar_type() == at::kDouble) {
    multiply<double>(target, source, *factor.const_data_ptr<double>());
  } else {
    at::NoGradGuard no_grad;
    at::mul_out(target, source, factor);
  }
}

} // namespace ddp::detail
