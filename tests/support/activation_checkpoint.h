#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <utility>

namespace ddp::test {

using Segment = std::function<at::Tensor(const at::Tensor&)>;

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  struct Holder : torch::CustomClassHolder {
    explicit Holder(Segment s) : segment(std::move(s)) {}
    Segment segment;
  };

  static at::Tensor forward(
      torch::autograd::AutogradContext* context,
      const at::Tensor& input,
      const Segment& segment) {
    // An output that is detached after the segment has an undefined gradient.
    context->set_materialize_grads(false);
    context->save_for_backward({input});
    context->saved_data["segment"] =
        c10::IValue::make_capsule(c10::make_intrusive<Holder>(segment));
    return segment(input).clone();
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& grads) {
    const auto capsule = context->saved_data["segment"].toCapsule();
    const auto& segment = static_cast<Holder&>(*capsule).segment;
    const auto input =
        context->get_saved_variables()[0].detach().set_requires_grad(true);
    const at::AutoGradMode enable(true);
    const auto output = segment(input);
    if (output.requires_grad() && grads[0].defined()) {
      output.backward(grads[0]);
    }
    return {input.grad(), at::Tensor()};
  }
};

/// `segment(input)` with activation checkpointing: discards the segment's
/// values and recomputes them in the backward pass, with a nested backward
/// pass. `input` must require a gradient.
inline at::Tensor checkpoint(const at::Tensor& input, const Segment& segment) {
  return CheckpointFunction::apply(input, segment);
}

} // namespace ddp::test
