#include <ddp/fused_optimizers.h>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <memory>
#include <vector>

namespace ddp {
namespace {

using at::Tensor;
using torch::optim::Optimizer;

/// What one call of a kernel takes: tensors of one dtype and device that have
/// come equally far.
struct Batch {
  at::ScalarType dtype;
  c10::Device device;
  int64_t steps; ///< that they had before this one
  std::vector<Tensor> parameters = {};
  std::vector<Tensor> gradients = {};
  std::vector<Tensor> first_moments = {}; ///< of SGD: the momentum
  std::vector<Tensor> second_moments = {};
  std::vector<Tensor> largest_moments = {};
};

Batch& batch_for(
    std::vector<Batch>& batches,
    const Tensor& parameter,
    int64_t steps) {
  for (auto& batch : batches) {
    if (batch.steps == steps && batch.dtype == parameter.scalar_type() &&
        batch.device == parameter.device()) {
      return batch;
    }
  }
  return batches.emplace_back(
      Batch{parameter.scalar_type(), parameter.device(), steps});
}

/// The kernels walk over the memory of both.
void check(const Tensor& parameter, const Tensor& gradient) {
  TORCH_CHECK(
      gradient.layout() == at::kStrided,
      "a fused optimizer takes no sparse gradients; use torch::optim::SGD for "
      "this parameter");
  TORCH_CHECK(
      !parameter.is_complex(),
      "a fused optimizer takes no complex parameters; use LibTorch's own");
  TORCH_CHECK(
      parameter.is_non_overlapping_and_dense() &&
          parameter.strides() == gradient.strides(),
      "a fused optimizer takes parameters without gaps whose gradients have "
      "the same strides, but they are ",
      parameter.strides(),
      " and ",
      gradient.strides());
}

Tensor zeros(const Tensor& parameter) {
  return at::zeros_like(parameter, at::MemoryFormat::Preserve);
}

/// The parameter's state, made by `make` in its first step.
template <typename State, typename Make>
State& state_of(
    Optimizer& optimizer,
    const Tensor& parameter,
    const Make& make) {
  auto& place = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!place) {
    place = make();
  }
  return static_cast<State&>(*place);
}

void add(
    Optimizer& optimizer,
    const torch::optim::SGDOptions& options,
    const Tensor& parameter,
    std::vector<Batch>& batches) {
  using State = torch::optim::SGDParamState;
  int64_t steps = 1;
  const auto make = [&] {
    auto state = std::make_unique<State>();
    state->momentum_buffer(zeros(parameter));
    steps = 0;
    return state;
  };
  Tensor momentum;
  if (options.momentum() != 0) {
    momentum = state_of<State>(optimizer, parameter, make).momentum_buffer();
  }
  auto& batch = batch_for(batches, parameter, steps);
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(parameter.grad());
  if (momentum.defined()) {
    batch.first_moments.push_back(momentum);
  }
}

void run(const torch::optim::SGDOptions& options, const Batch& batch) {
  at::_fused_sgd_(
      batch.parameters,
      batch.gradients,
      batch.first_moments,
      options.weight_decay(),
      options.momentum(),
      options.lr(),
      options.dampening(),
      options.nesterov(),
      /*maximize=*/false,
      /*is_first_step=*/batch.steps == 0);
}

template <typename State, typename Options>
void add_to_adam(
    Optimizer& optimizer,
    const Options& options,
    const Tensor& parameter,
    std::vector<Batch>& batches) {
  auto& state = state_of<State>(optimizer, parameter, [&] {
    auto fresh = std::make_unique<State>();
    fresh->exp_avg(zeros(parameter));
    fresh->exp_avg_sq(zeros(parameter));
    if (options.amsgrad()) {
      fresh->max_exp_avg_sq(zeros(parameter));
    }
    return fresh;
  });
  auto& batch = batch_for(batches, parameter, state.step());
  state.step(state.step() + 1);
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(parameter.grad());
  batch.first_moments.push_back(state.exp_avg());
  batch.second_moments.push_back(state.exp_avg_sq());
  if (options.amsgrad()) {
    batch.largest_moments.push_back(state.max_exp_avg_sq());
  }
}

void add(
    Optimizer& optimizer,
    const torch::optim::AdamOptions& options,
    const Tensor& parameter,
    std::vector<Batch>& batches) {
  add_to_adam<torch::optim::AdamParamState>(
      optimizer, options, parameter, batches);
}

void add(
    Optimizer& optimizer,
    const torch::optim::AdamWOptions& options,
    const Tensor& parameter,
    std::vector<Batch>& batches) {
  add_to_adam<torch::optim::AdamWParamState>(
      optimizer, options, parameter, batches);
}

template <typename Kernel, typename Options>
void run_adam(Kernel* kernel, const Options& options, const Batch& batch) {
  const auto [beta1, beta2] = options.betas();
  const auto steps = at::full(
      {},
      static_cast<float>(batch.steps + 1),
      at::TensorOptions(at::kFloat).device(batch.device));
  kernel(
      batch.parameters,
      batch.gradients,
      batch.first_moments,
      batch.second_moments,
      batch.largest_moments,
      std::vector<Tensor>(batch.parameters.size(), steps),
      options.lr(),
      beta1,
      beta2,
      options.weight_decay(),
      options.eps(),
      options.amsgrad(),
      /*maximize=*/false,
      /*grad_scale=*/{},
      /*found_inf=*/{});
}

using AdamKernel = void(
    at::TensorList,
    at::TensorList,
    at::TensorList,
    at::TensorList,
    at::TensorList,
    at::TensorList,
    double,
    double,
    double,
    double,
    double,
    bool,
    bool,
    const std::optional<Tensor>&,
    const std::optional<Tensor>&);

void run(const torch::optim::AdamOptions& options, const Batch& batch) {
  run_adam<AdamKernel>(&at::_fused_adam_, options, batch);
}

void run(const torch::optim::AdamWOptions& options, const Batch& batch) {
  run_adam<AdamKernel>(&at::_fused_adamw_, options, batch);
}

template <typename Options>
Tensor step(Optimizer& optimizer, const Optimizer::LossClosure& closure) {
  const at::NoGradGuard no_grad;
  Tensor loss;
  if (closure) {
    const at::AutoGradMode enabled(true);
    loss = closure();
  }
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    std::vector<Batch> batches;
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) {
        check(parameter, parameter.grad());
        add(optimizer, options, parameter, batches);
      }
    }
    for (const auto& batch : batches) {
      run(options, batch);
    }
  }
  return loss;
}

} // namespace

Tensor FusedSGD::step(LossClosure closure) {
  return ddp::step<torch::optim::SGDOptions>(*this, closure);
}

Tensor FusedAdam::step(LossClosure closure) {
  return ddp::step<torch::optim::AdamOptions>(*this, closure);
}

Tensor FusedAdamW::step(LossClosure closure) {
  return ddp::step<torch::optim::AdamWOptions>(*this, closure);
}

} // namespace ddp
