#include <ddp/nn/synchronized_batch_norm.h>

#include <ddp/failure/heartbeat.h>
#include <ddp/internal/check.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace ddp::detail {
namespace {

namespace autograd = torch::autograd;

/// Holds a group in an autograd context.
struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(ProcessGroup its_group) : group(std::move(its_group)) {}
  ProcessGroup group;
};

bool is_reduced(const at::Tensor& input) {
  return input.scalar_type() == at::kHalf ||
      input.scalar_type() == at::kBFloat16;
}

/// The dtype in which the input's statistics are computed and applied.
at::ScalarType statistics_dtype(const at::Tensor& input) {
  return is_reduced(input) ? at::kFloat : input.scalar_type();
}

/// The moments of all ranks' batches, double; `count` has one element.
struct BatchMoments {
  at::Tensor mean;
  at::Tensor variance;
  at::Tensor count;
};

/// This rank's mean, sum of squared deviations, and count.
void summarise(const at::Tensor& input, at::Tensor row) {
  if (input.numel() == 0) {
    return; // zeros
  }
  const auto channels = input.size(1);
  const auto count = input.numel() / channels;
  at::Tensor unused_mean, unused_variance; // used only for their dtype
  if (is_reduced(input)) {
    unused_mean = at::zeros({channels}, input.options().dtype(at::kFloat));
    unused_variance = at::zeros_like(unused_mean);
  }
  const auto [mean, variance] =
      at::batch_norm_update_stats(input, unused_mean, unused_variance, 0.);
  row.narrow(0, 0, channels).copy_(mean);
  row.narrow(0, channels, channels).copy_(variance).mul_(count);
  row.narrow(0, 2 * channels, 1).fill_(count);
}

/// Throws on all ranks if the ranks' layers differ.
void check_numbers(const at::Tensor& numbers) {
  const auto values = numbers.accessor<double, 1>();
  for (int64_t rank = 1; rank < values.size(0); ++rank) {
    DDP_CHECK_VALUE(
        values[rank] == values[0],
        "convert_sync_batchnorm: rank {} runs layer {}, but rank 0 runs layer "
        "{} of the returned names, counted from 0. All ranks must run the same "
        "layers in the same order: give a layer that a rank does not need an "
        "empty batch, x.narrow(0, 0, 0), and add 0 * output.sum() to the loss",
        rank,
        values[rank],
        values[0]);
  }
}

/// Merges without cancellation, in rank order: all ranks get the same bits.
/// Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm
/// for computing sample variances, 1979.
BatchMoments gather_statistics(
    const at::Tensor& input,
    int64_t number,
    const ProcessGroup& group) {
  const auto channels = input.size(1);
  // A sum in which each rank fills one row, and the others are zero: an
  // all-gather that every backend supports, without an exchange of lengths.
  auto rows = at::zeros(
      {group.size(), 2 * channels + 2}, input.options().dtype(at::kDouble));
  summarise(input, rows[group.rank()]);
  const auto numbers = rows.select(1, 2 * channels + 1);
  const bool checks = rows.is_cpu(); // the host would have to wait for a GPU
  if (checks) {
    numbers[group.rank()].fill_(number);
  }
  const heartbeat::Activity activity("SyncBatchNorm");
  group.all_reduce(rows);
  if (checks) {
    check_numbers(numbers);
  }
  const auto means = rows.narrow(1, 0, channels);
  const auto squares = rows.narrow(1, channels, channels);
  const auto counts = rows.narrow(1, 2 * channels, 1);
  const auto count = counts.sum(0);
  const auto divisor = count.clamp_min(1.); // all batches may be empty
  const auto mean = (means * counts).sum(0) / divisor;
  const auto variance =
      (squares + counts * (means - mean).square()).sum(0) / divisor;
  return {mean, variance, count};
}

void update_running(
    const BatchNormState& state,
    const BatchMoments& batch,
    double momentum) {
  const auto share = (batch.count > 0).to(at::kDouble) * momentum;
  const auto follow = [&](const at::Tensor& running, const at::Tensor& value) {
    if (running.defined()) {
      running.copy_(running.to(at::kDouble).lerp(value, share));
    }
  };
  follow(state.running_mean, batch.mean);
  follow(
      state.running_var,
      batch.variance * batch.count / (batch.count - 1).clamp_min(1.));
}

/// (input - mean) / sqrt(variance + eps) * weight + bias
at::Tensor normalise(
    const at::Tensor& input,
    const at::Tensor& weight,
    const at::Tensor& bias,
    const at::Tensor& mean,
    const at::Tensor& variance,
    double eps) {
  if (input.numel() == 0) {
    return at::empty_like(input);
  }
  return std::get<0>(at::native_batch_norm(
      input, weight, bias, mean, variance, /*training=*/false, 0., eps));
}

at::Tensor as(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

struct SynchronizedBatchNorm : autograd::Function<SynchronizedBatchNorm> {
  static at::Tensor forward(
      autograd::AutogradContext* context,
      const at::Tensor& input,
      const std::optional<at::Tensor>& maybe_weight,
      const std::optional<at::Tensor>& maybe_bias,
      const BatchMoments& batch,
      double eps,
      const ProcessGroup& group) {
    const auto weight = maybe_weight.value_or(at::Tensor());
    const auto bias = maybe_bias.value_or(at::Tensor());
    const auto dtype = statistics_dtype(input);
    context->save_for_backward(
        {input, weight, bias, batch.mean, batch.variance, batch.count});
    context->saved_data["eps"] = eps;
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
    return normalise(
        input,
        as(weight, dtype),
        as(bias, dtype),
        batch.mean.to(dtype),
        batch.variance.to(dtype),
        eps);
  }

  static autograd::variable_list backward(
      autograd::AutogradContext* context,
      const autograd::variable_list& gradients) {
    DDP_CHECK_WITH(
        NotImplementedError,
        !at::GradMode::is_enabled(),
        "SyncBatchNorm: second derivatives (create_graph) are not supported. "
        "Use torch::nn::BatchNorm if gradients are differentiated.");
    const auto saved = context->get_saved_variables();
    const auto& input = saved[0];
    const auto& weight = saved[1];
    const auto eps = context->saved_data["eps"].toDouble();
    const auto& bias = saved[2];
    const BatchMoments batch{saved[3], saved[4], saved[5]};
    const auto gradient =
        gradients[0].contiguous(input.suggest_memory_format());
    // Sums of the gradient (row 0), and of the gradient times the normalized
    // input (row 1).
    auto sums = local_sums(input, gradient, batch, eps);
    autograd::variable_list result(6);
    if (weight.defined()) {
      result[1] = sums[1].to(weight.scalar_type());
    }
    if (bias.defined()) {
      result[2] = sums[0].to(bias.scalar_type());
    }
    if (context->needs_input_grad(0)) {
      sums = sums.clone(); // weight and bias use this rank's
      const auto group = context->saved_data["group"].toCapsule();
      const heartbeat::Activity activity("SyncBatchNorm");
      static_cast<HeldGroup*>(group.get())->group.all_reduce(sums);
      const auto means = sums / batch.count.clamp_min(1.);
      auto slope = (batch.variance + eps).rsqrt();
      if (weight.defined()) {
        slope = slope * weight;
      }
      result[0] = input_gradient(input, gradient, batch, eps, slope, means);
    }
    return result;
  }

  /// double, 2 x C
  static at::Tensor local_sums(
      const at::Tensor& input,
      const at::Tensor& gradient,
      const BatchMoments& batch,
      double eps) {
    const auto dtype = statistics_dtype(input);
    const auto options = input.options().dtype(at::kDouble);
    if (input.numel() == 0) {
      return at::zeros({2, input.size(1)}, options);
    }
    const auto mean = batch.mean.to(dtype);
    const auto [unused, of_products, of_gradient] =
        at::native_batch_norm_backward(
            gradient,
            input,
            at::ones({input.size(1)}, options.dtype(dtype)),
            mean,
            batch.variance.to(dtype),
            mean, // CUDA's kernel reads these two, the CPU's the two above
            (batch.variance + eps).rsqrt().to(dtype),
            /*train=*/false,
            eps,
            {false, true, true});
    return at::stack({of_gradient, of_products}).to(at::kDouble);
  }

  /// slope * (gradient - means[0] - normalized input * means[1])
  static at::Tensor input_gradient(
      const at::Tensor& input,
      const at::Tensor& gradient,
      const BatchMoments& batch,
      double eps,
      const at::Tensor& slope,
      const at::Tensor& means) {
    const auto dtype = statistics_dtype(input);
    auto result = normalise(
        input,
        (-slope * means[1]).to(dtype),
        (-slope * means[0]).to(dtype),
        batch.mean.to(dtype),
        batch.variance.to(dtype),
        eps);
    std::vector<int64_t> shape(input.dim(), 1);
    shape[1] = input.size(1);
    return result.addcmul_(gradient, slope.to(dtype).view(shape));
  }
};

} // namespace

at::Tensor synchronized_batch_norm(
    const at::Tensor& input,
    const BatchNormState& state,
    double momentum,
    double eps,
    const ProcessGroup& group) {
  BatchMoments batch;
  {
    at::NoGradGuard no_grad;
    batch = gather_statistics(input, state.number, group);
    update_running(state, batch, momentum);
  }
  return SynchronizedBatchNorm::apply(
      input,
      std::make_optional(state.weight),
      std::make_optional(state.bias),
      batch,
      eps,
      group);
}

} // namespace ddp::detail
