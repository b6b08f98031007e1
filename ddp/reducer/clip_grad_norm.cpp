#include <ddp/reducer/reducer_impl.h>

#include <ddp/internal/check.h>
#include <ddp/reducer/buckets/conflicts.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace ddp {
namespace {

/// On the CPU, a sum over a whole bucket in single precision loses half of its
/// digits; a sum of short sums does not, and is faster.
constexpr int64_t kRow = 4096;

/// Adds the norms of the parts of `values`, double, 1-D.
void add_norms(
    const at::Tensor& values,
    double norm_type,
    std::vector<at::Tensor>& norms) {
  const bool reduced = values.scalar_type() == at::kHalf ||
      values.scalar_type() == at::kBFloat16;
  const auto dtype = reduced ? std::make_optional(at::kFloat) : std::nullopt;
  const auto flat = values.reshape({-1});
  const auto in_rows = flat.numel() / kRow * kRow;
  for (const auto& part :
       {flat.narrow(0, 0, in_rows).view({-1, kRow}),
        flat.narrow(0, in_rows, flat.numel() - in_rows).unsqueeze(0)}) {
    if (part.numel() > 0) {
      norms.push_back(
          at::linalg_vector_norm(part, norm_type, 1, /*keepdim=*/false, dtype)
              .to(at::kDouble));
    }
  }
}

/// All gradients of parameters; those that are adjacent in a bucket form a run.
/// A parameter without a gradient in the bucket ends a run.
std::vector<at::Tensor> gradient_runs(const ReducerImpl& reducer) {
  DDP_CHECK(
      !reducer.backward.is_open(),
      "clip_grad_norm: a backward pass is running: call clip_grad_norm after "
      "backward() has returned");
  detail::check_no_conflict(
      detail::Feature::kClipGradNorm,
      detail::Feature::kStepInBackward,
      reducer.observers.step_in_backward.optimizer() != nullptr);
  std::vector<at::Tensor> runs;
  for (const auto& bucket : reducer.buckets.all()) {
    int64_t begin = 0;
    int64_t end = 0;
    const auto close_run = [&] {
      if (end > begin) {
        runs.push_back(bucket.content.buffer.narrow(0, begin, end - begin));
      }
    };
    for (const size_t index : bucket.indices) {
      const auto& parameter = reducer.parameters[index];
      const auto next = end + parameter.tensor.numel();
      if (!parameter.lies_in_slice(parameter.tensor.grad())) {
        close_run();
        begin = next;
      }
      end = next;
    }
    close_run();
  }
  for (const auto& parameter : reducer.parameters) {
    auto& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined() || parameter.lies_in_slice(gradient)) {
      continue;
    }
    if (gradient.is_sparse()) { // the sum of equal rows counts
      gradient = gradient.coalesce();
    }
    runs.push_back(gradient.is_sparse() ? gradient._values() : gradient);
  }
  return runs;
}

} // namespace

at::Tensor Reducer::clip_grad_norm(
    double max_norm,
    double norm_type,
    bool error_if_nonfinite) {
  DDP_CHECK_VALUE(
      norm_type > 0,
      "clip_grad_norm: norm_type is {}, expected a number > 0",
      norm_type);
  const at::NoGradGuard no_grad;
  const auto runs = gradient_runs(impl());
  std::vector<at::Tensor> norms;
  for (const auto& run : runs) {
    add_norms(run, norm_type, norms);
  }
  if (norms.empty()) {
    return at::zeros({}, at::kDouble);
  }
  for (auto& norm : norms) {
    norm = norm.to(norms.front().device());
  }
  const auto total = at::linalg_vector_norm(at::cat(norms), norm_type);
  DDP_CHECK(
      !error_if_nonfinite || std::isfinite(total.item<double>()),
      "clip_grad_norm: the norm of the gradients is {}, expected a finite "
      "number",
      total.item<double>());
  const auto factor = (max_norm / (total + 1e-6)).clamp_max(1.);
  if (factor.is_cpu() && factor.item<double>() == 1) {
    return total; // saves a pass over the gradients
  }
  at::Tensor own; // the factor as the last run needed it
  for (const auto& run : runs) {
    // A GPU multiplies faster by a factor of the run's dtype. A CPU does not,
    // and would round the factor of a half-precision run.
    const auto dtype = run.is_cpu() ? factor.scalar_type()
                                    : c10::toRealValueType(run.scalar_type());
    if (!own.defined() || own.device() != run.device() ||
        own.scalar_type() != dtype) {
      own = factor.to(run.device(), dtype);
    }
    run.mul_(own);
  }
  return total;
}

} // namespace ddp
