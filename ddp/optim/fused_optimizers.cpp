#include <ddp/optimizers.h>

#include <ddp/backends/capture.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <type_traits>

namespace ddp {
namespace {

using at::Tensor;
using torch::optim::Optimizer;

/// The tensors of one kernel call, which have the same dtype, device and number
/// of steps.
struct Batch {
  at::ScalarType dtype;
  c10::Device device;
  int64_t steps; ///< before this one
  std::vector<Tensor> originals = {};
  std::vector<Tensor> parameters = {}; ///< the originals, or copies
  std::vector<Tensor> gradients = {};
  std::vector<Tensor> first_moments = {}; ///< for SGD, the momentum
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

/// Whether both tensors have the same memory layout, without gaps.
bool can_walk(const Tensor& tensor, const Tensor& like) {
  if (!tensor.is_non_overlapping_and_dense() ||
      !detail::has_plain_memory(tensor)) {
    return false;
  }
  for (int64_t d = 0; d < like.dim(); ++d) {
    if (like.size(d) != 1 && like.stride(d) != tensor.stride(d)) {
      return false;
    }
  }
  return true;
}

/// Kernels walk over the memory of several tensors in parallel. Returns
/// `tensor`, or a copy with the layout of `like` without gaps. Loaded states
/// may need a copy, too.
Tensor walkable(const Tensor& tensor, const Tensor& like) {
  return can_walk(tensor, like)
      ? tensor
      : at::empty_like(
            like,
            like.options().dtype(tensor.scalar_type()),
            at::MemoryFormat::Preserve)
            .copy_(tensor);
}

void check_gradient(const Tensor& parameter, const Tensor& gradient) {
  DDP_CHECK(
      gradient.layout() == at::kStrided,
      "a fused optimizer does not support sparse gradients; use "
      "torch::optim::SGD for this parameter");
  DDP_CHECK(
      !parameter.is_complex(),
      "a fused optimizer does not support complex parameters; use LibTorch's "
      "optimizer");
  DDP_CHECK(
      parameter.sizes() == gradient.sizes() &&
          parameter.device() == gradient.device(),
      "a fused optimizer requires that a gradient has its parameter's sizes "
      "and device, but the gradient has sizes {} on {}, the parameter {} on {}",
      gradient.sizes(),
      gradient.device(),
      parameter.sizes(),
      parameter.device());
}

/// Adds the parameter, as kernels walk over it, and its gradient.
Tensor add_parameter(const Tensor& original, Batch& batch) {
  auto parameter = walkable(original, original);
  batch.originals.push_back(original);
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(
      walkable(original.grad().to(original.scalar_type()), parameter));
  return parameter;
}

Tensor zeros(const Tensor& parameter) {
  return at::zeros_like(parameter, at::MemoryFormat::Preserve);
}

/// The parameter's state, which `make` creates in its first step.
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
  State* state = nullptr;
  if (options.momentum() != 0) {
    state = &state_of<State>(optimizer, parameter, make);
  }
  auto& batch = batch_for(batches, parameter, steps);
  const auto like = add_parameter(parameter, batch);
  if (state) {
    batch.first_moments.push_back(walkable(state->momentum_buffer(), like));
    state->momentum_buffer(batch.first_moments.back());
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

/// For Adam or AdamW.
template <typename Options>
void add(
    Optimizer& optimizer,
    const Options& options,
    const Tensor& parameter,
    std::vector<Batch>& batches) {
  using State = std::conditional_t<
      std::is_same_v<Options, torch::optim::AdamOptions>,
      torch::optim::AdamParamState,
      torch::optim::AdamWParamState>;
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
  const auto like = add_parameter(parameter, batch);
  batch.first_moments.push_back(walkable(state.exp_avg(), like));
  state.exp_avg(batch.first_moments.back());
  batch.second_moments.push_back(walkable(state.exp_avg_sq(), like));
  state.exp_avg_sq(batch.second_moments.back());
  if (options.amsgrad()) {
    batch.largest_moments.push_back(walkable(state.max_exp_avg_sq(), like));
    state.max_exp_avg_sq(batch.largest_moments.back());
  }
}

template <typename Options>
void run(const Options& options, const Batch& batch) {
  const auto kernel = [](const auto&... arguments) {
    if constexpr (std::is_same_v<Options, torch::optim::AdamOptions>) {
      at::_fused_adam_(arguments...);
    } else {
      at::_fused_adamw_(arguments...);
    }
  };
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
      /*grad_scale=*/std::optional<Tensor>(),
      /*found_inf=*/std::optional<Tensor>());
}

/// Whether the parameter's momentum exists and can be updated in its memory.
bool has_momentum_in_place(Optimizer& optimizer, const Tensor& parameter) {
  const auto place = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (place == optimizer.state().end()) {
    return false;
  }
  const auto& momentum =
      static_cast<const torch::optim::SGDParamState&>(*place->second)
          .momentum_buffer();
  const auto without_gaps = at::empty_like(
      parameter,
      parameter.options().device(at::kMeta),
      at::MemoryFormat::Preserve);
  return can_walk(momentum, without_gaps);
}

/// A CUDA graph replays a kernel with the numbers of the capture.
void check_capture(
    Optimizer& optimizer,
    const torch::optim::SGDOptions& options,
    const Tensor& parameter) {
  DDP_CHECK(
      options.momentum() == 0 || has_momentum_in_place(optimizer, parameter),
      "capturing a CUDA graph: this is the first step of a fused optimizer "
      "with momentum, or the first step with a loaded momentum of another "
      "memory layout, and each replay would restart its momentum. Step at "
      "least once before capturing");
}

template <typename Options>
void check_capture(
    Optimizer& /*optimizer*/,
    const Options& /*options*/,
    const Tensor& /*parameter*/) {
  DDP_THROW(
      Error,
      "capturing a CUDA graph: the step of FusedAdam and FusedAdamW depends on "
      "the number of earlier steps, which the host counts: each replay would "
      "use the number from the capture. Exclude the optimizer's step from the "
      "graph, or use FusedSGD");
}

/// Checks everything before any change.
template <typename Options>
void check_all(Optimizer& optimizer) {
  std::optional<c10::Device> device;
  bool capturing = false;
  for (const auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) {
        continue;
      }
      check_gradient(parameter, parameter.grad());
      if (device != parameter.device()) {
        device = parameter.device();
        capturing = backends::is_capturing(*device);
      }
      if (capturing) {
        check_capture(optimizer, options, parameter);
      }
    }
  }
}

template <typename Options>
Tensor step(Optimizer& optimizer, const Optimizer::LossClosure& closure) {
  const at::NoGradGuard no_grad;
  Tensor loss;
  if (closure) {
    const at::AutoGradMode enabled(true);
    loss = closure();
  }
  check_all<Options>(optimizer);
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    std::vector<Batch> batches;
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) {
        add(optimizer, options, parameter, batches);
      }
    }
    for (const auto& batch : batches) {
      run(options, batch);
      for (size_t i = 0; i < batch.originals.size(); ++i) {
        if (!batch.originals[i].is_same(batch.parameters[i])) {
          Tensor(batch.originals[i]).copy_(batch.parameters[i]);
        }
      }
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
