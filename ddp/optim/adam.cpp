#include <ddp/optimizers.h>

#include <ddp/backends/capture.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_memory.h>

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <optional>

namespace ddp {
namespace {

using detail::as_real;
using torch::optim::Optimizer;

template <typename State>
State& state_of(
    Optimizer& optimizer,
    const at::Tensor& parameter,
    bool amsgrad) {
  auto& place = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!place) {
    const auto zeros = [&] {
      return at::zeros_like(parameter, at::MemoryFormat::Preserve);
    };
    auto state = std::make_unique<State>();
    state->exp_avg(zeros());
    state->exp_avg_sq(zeros());
    if (amsgrad) {
      state->max_exp_avg_sq(zeros());
    }
    place = std::move(state);
  }
  return static_cast<State&>(*place);
}

// Follows Python operation by operation, since each one rounds.
template <typename Options, typename State>
void update(
    const at::Tensor& parameter,
    State& state,
    const Options& options,
    bool decays_by_itself) {
  const auto [beta1, beta2] = options.betas();
  state.step(state.step() + 1);
  const auto steps = static_cast<double>(state.step());
  auto gradient = parameter.grad();
  if (options.weight_decay() != 0 && decays_by_itself) {
    parameter.mul_(1 - options.lr() * options.weight_decay());
  } else if (options.weight_decay() != 0) {
    gradient = gradient.add(parameter, options.weight_decay());
  }
  gradient = as_real(gradient.resolve_conj());
  auto mean = as_real(state.exp_avg());
  auto square = as_real(state.exp_avg_sq());
  mean.lerp_(gradient, 1 - beta1);
  square.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
  if (options.amsgrad()) {
    auto largest = as_real(state.max_exp_avg_sq());
    at::maximum_out(largest, largest, square);
    square = largest;
  }
  const auto correction1 = 1 - std::pow(beta1, steps);
  // Python's `** 0.5`, from which `sqrt` can differ in the last bit.
  const auto correction2 = std::pow(1 - std::pow(beta2, steps), 0.5);
  const auto divisor = (square.sqrt() / correction2).add_(options.eps());
  as_real(parameter).addcdiv_(mean, divisor, -(options.lr() / correction1));
}

/// A step that is refused changes nothing.
void check(const Optimizer& optimizer) {
  std::optional<c10::Device> checked;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) {
        continue;
      }
      DDP_CHECK(
          !parameter.grad().is_sparse(),
          "Adam does not support sparse gradients; use torch::optim::SGD for "
          "this parameter");
      if (checked != parameter.device()) {
        checked = parameter.device();
        backends::check_not_capturing(
            *checked,
            "the step of Adam and AdamW depends on the number of earlier "
            "steps, which the host counts. Exclude the optimizer's step from "
            "the graph, or use FusedSGD");
      }
    }
  }
}

template <typename Options, typename State>
at::Tensor step(
    Optimizer& optimizer,
    const Optimizer::LossClosure& closure,
    bool decays_by_itself) {
  const at::NoGradGuard no_grad;
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enabled(true);
    loss = closure();
  }
  check(optimizer);
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const auto& parameter : group.params()) {
      if (parameter.grad().defined()) {
        update(
            parameter,
            state_of<State>(optimizer, parameter, options.amsgrad()),
            options,
            decays_by_itself);
      }
    }
  }
  return loss;
}

} // namespace

at::Tensor Adam::step(LossClosure closure) {
  return ddp::step<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      *this, closure, false);
}

at::Tensor AdamW::step(LossClosure closure) {
  return ddp::step<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      *this, closure, true);
}

} // namespace ddp
